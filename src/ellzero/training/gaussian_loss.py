"""The Gaussian loss of appendix B: the code length of real numbers, with the noise level trained along or solved for.

Like every loss here it is a mean in nats. In bits, after `nats_to_bits`, it is eq. 5 and 16: with `sigma^2 = 1 / (2 ln 2)` the squared
error plus a constant.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ellzero.description import gaussian_code_length_bits
from ellzero.types import Scalar

_INITIAL_SIGMA = 0.1
"""The initial sigma of the authors' experiments."""


def gaussian_nats(
    predicted: Float[Tensor, "*shape"], observed: Float[Tensor, "*shape"], log_sigma: float | Float[Tensor, "*#shape"]
) -> Scalar:
    """Computes `1/2 ln(2 pi sigma^2) + (y - m)^2 / (2 sigma^2)`, the mean over all numbers of minus the log density (eq. 5, in nats).

    The length of a code is this minus the logarithm of the cell width, which does not depend on the network (eq. 15).

    Args:
        predicted: m, the Gaussians' means.
        observed: y.
        log_sigma: natural logarithm of the standard deviation in the unit of y: one value for all, or one per entry of the last
            dimensions.

    Returns:
        The mean; differentiable in all three arguments.

    Raises:
        ValueError: `predicted` and `observed` differ in shape.
    """
    log_sigma = torch.as_tensor(log_sigma, dtype=predicted.dtype, device=predicted.device)
    scaled = _residuals(predicted, observed) * torch.exp(-log_sigma)
    return (0.5 * math.log(2.0 * math.pi) + log_sigma + 0.5 * scaled.square()).mean()


def solved_sigma(predicted: Float[Tensor, "*shape"], observed: Float[Tensor, "*shape"], *, least_sigma: float = 0.0) -> Scalar:
    """Computes the sigma that minimises `gaussian_nats`: the root of the mean squared residual (Proposition B.1), without a gradient.

    Args:
        predicted: m.
        observed: y.
        least_sigma: a lower bound of sigma: the cell width is a good choice, as no code gains from a finer density.

    Raises:
        ValueError: `predicted` and `observed` differ in shape.
    """
    return _residuals(predicted, observed).detach().square().mean().sqrt().clamp_min(least_sigma)


def solved_gaussian_nats(predicted: Float[Tensor, "*shape"], observed: Float[Tensor, "*shape"], *, least_sigma: float) -> Scalar:
    """Computes `gaussian_nats` with the best sigma of these numbers: `1/2 ln(2 pi e MSE)` where that is above `least_sigma`.

    There is nothing to train beside the network, so it serves as a loss for `sparsify` as it is. Sigma is that of the batch: with few
    numbers in it, it is too small, by a factor of `1 - 1/numbers` in the mean of sigma^2 even for the true function.

    Args:
        predicted: m.
        observed: y.
        least_sigma: positive, in the unit of y; without it a perfect fit would have the loss minus infinity.

    Returns:
        The mean over all numbers; its gradient is that of the formula above, as the derivative in sigma is 0 at the best sigma.

    Raises:
        ValueError: `least_sigma` is not positive and finite.
    """
    if not 0 < least_sigma < math.inf:
        raise ValueError(f"least_sigma is {least_sigma}: expected a positive finite number in the unit of y, such as its cell width")
    return gaussian_nats(predicted, observed, solved_sigma(predicted, observed, least_sigma=least_sigma).log())


class GaussianLoss(nn.Module):
    """The Gaussian loss with a trainable noise level: `optimizer = Adam([*model.parameters(), *loss.parameters()])`.

    Only the model is regularised and pruned, `lz.attach(optimizer, model, ...)`: the noise level is no weight of it. It is trained as
    a logarithm, so that sigma stays positive and a step of Adam changes it by a factor.

    Attributes:
        log_sigma: natural logarithm of the standard deviation in the unit of y, one value for all numbers.
    """

    log_sigma: Tensor

    def __init__(self, sigma: float = _INITIAL_SIGMA) -> None:
        super().__init__()
        if not 0 < sigma < math.inf:
            raise ValueError(f"sigma is {sigma}: expected a positive finite number in the unit of y")
        self.log_sigma = nn.Parameter(torch.tensor(math.log(sigma)))

    def forward(self, predicted: Float[Tensor, "*shape"], observed: Float[Tensor, "*shape"]) -> Scalar:
        """Computes `gaussian_nats` at the present sigma."""
        return gaussian_nats(predicted, observed, self.log_sigma)

    @property
    def sigma(self) -> float:
        """The standard deviation in the unit of y."""
        return math.exp(float(self.log_sigma.detach()))

    @torch.no_grad()
    def solve_(self, predicted: Float[Tensor, "*shape"], observed: Float[Tensor, "*shape"], *, least_sigma: float = 1e-12) -> None:
        """Sets sigma to its best value for these numbers, at least `least_sigma`."""
        self.log_sigma.copy_(solved_sigma(predicted, observed, least_sigma=least_sigma).log())

    @torch.no_grad()
    def code_length_bits(self, predicted: Float[Tensor, "*shape"], observed: Float[Tensor, "*shape"], *, cell_width: float) -> float:
        """Computes the length of all numbers recorded to a stated precision, in bits: the data's half of eq. 2.

        Args:
            predicted: m.
            observed: y.
            cell_width: the precision to which y is recorded, in the unit of y.

        Raises:
            ValueError: `cell_width` is not positive and finite, or `predicted` and `observed` differ in shape.
        """
        residuals = _residuals(predicted, observed).flatten().double().cpu().numpy()
        return gaussian_code_length_bits(residuals, self.sigma, cell_width)


def _residuals(predicted: Float[Tensor, "..."], observed: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Subtracts without broadcasting, which would compare every prediction with every number."""
    if predicted.shape != observed.shape:
        raise ValueError(
            f"predicted has the shape {list(predicted.shape)} and observed {list(observed.shape)}: expected the same, one Gaussian per"
            " number; squeeze or view one of the two"
        )
    return observed - predicted
