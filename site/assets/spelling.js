/* Corrects misspelt words by the words that a site has: the nearest one, by letters left out, added, changed or swapped. */

const SHORTEST = 4;  // in letters
const LONG = 8;  // from this length on, two letters may be wrong

const letters = word => word.replace(/[^\p{L}]/gu, "");
const figures = word => word.replace(/\p{L}/gu, "");

/** Return how many letters two words differ by, or more than `most`. */
function distance(one, other, most) {
  if (Math.abs(one.length - other.length) > most) return most + 1;
  let before = [], last = Array.from({ length: other.length + 1 }, (_, place) => place);
  for (let row = 1; row <= one.length; row++) {
    const line = [row];
    for (let column = 1; column <= other.length; column++) {
      const same = one[row - 1] === other[column - 1];
      line[column] = Math.min(last[column] + 1, line[column - 1] + 1, last[column - 1] + !same);
      const swapped = one[row - 1] === other[column - 2] && one[row - 2] === other[column - 1];
      if (swapped) line[column] = Math.min(line[column], before[column - 2] + 1);
    }
    if (Math.min(...line) > most) return most + 1;
    [before, last] = [last, line];
  }
  return last[other.length];
}

export class Speller {
  /** `texts`: lists of words. Two that stand together are also known as one: "kvcache". */
  constructor(texts) {
    this.known = new Map();
    this.pairs = new Map();
    for (const words of texts) {
      words.forEach((word, place) => {
        this.known.set(word, (this.known.get(word) ?? 0) + 1);
        if (place && words[place - 1].length > 1 && word.length > 1) this.pairs.set(words[place - 1] + word, [words[place - 1], word]);
      });
    }
    this.sorted = [...this.known.keys()].sort();
  }

  #begins(text) {
    let [low, high] = [0, this.sorted.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.sorted[middle] < text) low = middle + 1;
      else high = middle;
    }
    return this.sorted[low]?.startsWith(text);
  }

  /** Return the words that a word stands for: itself if a known word begins so, or nothing known is near. */
  corrected(word) {
    if (letters(word).length < SHORTEST || this.#begins(word)) return [word];
    if (this.pairs.has(word)) return this.pairs.get(word);
    const most = word.length < LONG ? 1 : 2;
    let best = [most + 1];
    for (const [other, count] of [...this.known, ...[...this.pairs.keys()].map(pair => [pair, 0])]) {
      if (figures(word) !== figures(other)) continue;  // 0.17 is not 0.18
      const off = distance(word, other, Math.min(most, best[0]));
      // Of words that are as near: one that begins alike, then the one used most.
      const found = [off, word[0] !== other[0], -count, other];
      if (off <= most && (found[0] - best[0] || found[1] - best[1] || found[2] - best[2]) < 0) best = found;
    }
    const [off, , , other] = best;
    return off > most ? [word] : this.pairs.get(other) ?? [other];
  }
}
