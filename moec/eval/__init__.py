"""The numpy reference: runs a module and is what every other stage is compared with. ``run`` is the way in."""

from moec.eval.binding import bind
from moec.eval.errors import error_between
from moec.eval.evaluator import Evaluator, run

__all__ = ["Evaluator", "bind", "error_between", "run"]
