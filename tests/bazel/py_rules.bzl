"""Stands in for rules_python where only an old Bazel is at hand, which has the rules built in."""

py_binary = native.py_binary
py_library = native.py_library

def py_test(name, main_module, srcs, args = [], **attributes):
    """A test that runs a module, as `python -m` does, on a copy of its runfiles.

    Args:
      name: Of the target.
      main_module: The module to run. Built-in rules know only files, hence `run_module.py`.
      srcs: The test files.
      args: What the module gets.
      **attributes: All others, as they are.
    """

    # buildifier: disable=native-py
    native.py_test(
        name = name,
        srcs = srcs + ["@rules_python//python:run_module.py"],
        args = [main_module] + args,
        main = "@rules_python//python:run_module.py",
        **attributes
    )
