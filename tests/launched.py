"""What the launcher's tests start: a worker that loads nothing, which takes seconds.

It says its place, then runs those of its arguments "INDEX:CODE" that are for it.
"""

import json
import os
import sys

if __name__ == "__main__":
    config = json.loads(os.environ["TF_CONFIG"])
    print("worker", config["task"]["index"], config["cluster"], sys.argv[-1], flush=True)
    for argument in sys.argv[1:]:
        index, _, code = argument.partition(":")
        if index == str(config["task"]["index"]):
            exec(code)
