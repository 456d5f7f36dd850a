"""Runs a pipeline.py unchanged and notes what LMDeploy did: python3 drive.py SCRIPT EVENTS IMAGE...

Started by the interpreter that has LMDeploy, so it imports nothing of this project. It wraps
``lmdeploy.pipeline`` to write, one JSON object a line, the settings in effect once the engine is
built, and begin, end and texts of every call.
"""

import json
import runpy
import sys
import time

PAUSE_S = 1.5  # for the memory of the idle engine to be read
SETTINGS = ("session_len", "max_batch_size", "cache_max_entry_count", "max_prefill_token_num", "quant_policy", "tp")


def main(script, events, images):
    """Runs the script with the pictures as its arguments."""
    import lmdeploy

    build = lmdeploy.pipeline

    def note(**event):
        with open(events, "a", encoding="utf-8") as file:  # noqa: PTH123 - a plain script
            file.write(json.dumps({"at": time.time(), **event}) + "\n")

    def pipeline(*arguments, **named):
        pipe = build(*arguments, **named)
        engine = getattr(pipe, "async_engine", pipe)
        config = getattr(engine, "backend_config", None)
        settings = {name: getattr(config, name, None) for name in SETTINGS}
        kind = type(pipe)
        call = kind.__call__

        def watched(self, *given, **more):
            begun = time.time()
            answers = call(self, *given, **more)
            every = answers if isinstance(answers, list) else [answers]
            note(
                event="answered",
                begun=begun,
                texts=[each.text for each in every],
                input_tokens=[each.input_token_len for each in every],
                output_tokens=[each.generate_token_len for each in every],
            )
            return answers

        kind.__call__ = watched
        note(event="built", config=type(config).__name__, settings={k: plain(v) for k, v in settings.items()})
        time.sleep(PAUSE_S)
        return pipe

    lmdeploy.pipeline = pipeline
    sys.argv = [script, *images]
    runpy.run_path(script, run_name="__main__")


def plain(value):
    """A setting as JSON can hold it; an enumeration by its number."""
    value = getattr(value, "value", value)
    return value if isinstance(value, (int, float, str, type(None))) else str(value)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
