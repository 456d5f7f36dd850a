"""Run a pipeline.py unchanged and log what LMDeploy does.

Usage: python3 offline_driver.py SCRIPT EVENTS IMAGE...

The interpreter that has LMDeploy runs this file, so it imports nothing of this project. It wraps
``lmdeploy.pipeline`` when the script imports it, and writes one JSON object a line: the settings of the built engine,
and begin, end and texts of every call.
"""

import importlib.util
import json
import runpy
import sys
import time

PAUSE_S = 1.5  # for the memory of the idle engine to be read
SETTINGS = ("session_len", "max_batch_size", "cache_max_entry_count", "max_prefill_token_num", "quant_policy", "tp")


class Hook:
    """Pass LMDeploy to ``callback`` once imported: the script sets its environment first."""

    def __init__(self, callback):
        self.callback = callback

    def find_spec(self, name, path=None, target=None):
        """Find lmdeploy as usual and add a step after its loading."""
        if name != "lmdeploy":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None:
            load = spec.loader.exec_module

            def exec_module(module):
                load(module)
                self.callback(module)

            spec.loader.exec_module = exec_module
        return spec


def main(script, events, images):
    """Run the script with the images as its arguments."""

    def note(**event):
        with open(events, "a", encoding="utf-8") as file:  # noqa: PTH123 - a plain script
            file.write(json.dumps({"at": time.time(), **event}) + "\n")

    def found(lmdeploy):
        build = lmdeploy.pipeline
        lmdeploy.pipeline = lambda *arguments, **named: watched_pipe(build(*arguments, **named))

    def watched_pipe(pipe):
        engine = getattr(pipe, "async_engine", pipe)
        config = getattr(engine, "backend_config", None)
        settings = {name: getattr(config, name, None) for name in SETTINGS}
        kind = type(pipe)
        call = kind.__call__

        def watched(self, *arguments, **more):
            begun = time.time()
            answers = call(self, *arguments, **more)
            every = answers if isinstance(answers, list) else [answers]
            note(
                event="answered",
                begun=begun,
                texts=[answer.text for answer in every],
                input_tokens=[answer.input_token_len for answer in every],
                output_tokens=[answer.generate_token_len for answer in every],
            )
            return answers

        kind.__call__ = watched
        note(event="built", config=type(config).__name__, settings={k: plain(v) for k, v in settings.items()})
        time.sleep(PAUSE_S)
        return pipe

    sys.meta_path.insert(0, Hook(found))
    sys.argv = [script, *images]
    runpy.run_path(script, run_name="__main__")


def plain(value):
    """Return a setting as a JSON value; an enumeration as its number."""
    value = getattr(value, "value", value)
    return value if isinstance(value, (int, float, str, type(None))) else str(value)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
