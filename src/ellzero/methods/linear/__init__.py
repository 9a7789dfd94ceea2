"""Linear models, where the objective itself can be minimised: l0 by its gates (Lemma 2.3), the lasso and the relaxed lasso."""

from ellzero.methods.linear._lasso import RelaxedLasso, lasso, relaxed_lasso
from ellzero.methods.linear._linear_l0 import LinearL0, linear_l0
from ellzero.methods.linear.operator import IDENTITY, LinearOperator, dense_operator

__all__ = ["IDENTITY", "LinearL0", "LinearOperator", "RelaxedLasso", "dense_operator", "lasso", "linear_l0", "relaxed_lasso"]
