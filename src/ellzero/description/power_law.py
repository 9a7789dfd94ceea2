"""Power laws of loss curves and the area under them: an online code length from a few points of a curve (appendix J.2)."""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

_MOST_STEPS = 200


@dataclass(frozen=True, kw_only=True)
class PowerLaw:
    """The curve `y = scale * (x - shift)^(-exponent)` (eq. 42).

    Attributes:
        scale: y at a distance of 1 from `shift`, positive.
        exponent: how fast y falls, positive for a falling curve.
        shift: the x at which a falling curve is infinite.

    Raises:
        ValueError: a value is not finite, or `scale` is not positive.
    """

    scale: float
    exponent: float
    shift: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.scale) and self.scale > 0 and math.isfinite(self.exponent) and math.isfinite(self.shift)):
            raise ValueError(f"a power law needs finite values and a positive scale, got {self}")

    def __call__(self, x: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        """Computes y at every x.

        Args:
            x: positions, above `shift`; at or below it the result is infinite or NaN.

        Returns:
            y, in the unit of `scale`.
        """
        with np.errstate(invalid="ignore", divide="ignore"):
            return self.scale * (x - self.shift) ** -self.exponent

    def integral(self, start: float, end: float) -> float:
        """Computes the area under the curve in closed form (eq. 43).

        Args:
            start: lower limit, at least `shift`: below it the curve is not real.
            end: upper limit, at least `start`.

        Returns:
            The area, in units of y times units of x: with a loss in nats per token over billions of tokens, 10^9 nats.

        Raises:
            ValueError: the limits are out of order or below `shift`, or the area is infinite.
        """
        low, high = start - self.shift, end - self.shift
        if not 0 <= low <= high < math.inf:
            raise ValueError(f"the limits {start} and {end} must be in order, finite, and not below the shift, {self.shift}")
        power = 1 - self.exponent
        if low == 0:
            if power <= 0:
                raise ValueError(f"the area from the shift on is infinite for the exponent {self.exponent}: begin above {self.shift}")
            return self.scale * high**power / power
        ratio = math.log(high / low)
        # Near an exponent of 1 the difference of two powers over `power` would lose every digit.
        return self.scale * low**power * (math.expm1(power * ratio) / power if power else ratio)


def fit_power_law(x: Float[np.ndarray, "points"], y: Float[np.ndarray, "points"], *, shift: float = 0.0) -> PowerLaw:
    """Fits `scale` and `exponent` by least squares in y, for a given shift.

    Gauss-Newton in (ln scale, exponent) with halved steps, from the straight line through the logarithms. That line alone is another
    fit: it weighs relative errors.

    Args:
        x: positions, above `shift`.
        y: values, positive.
        shift: the x at which the curve is infinite; the paper has 1.

    Returns:
        The law whose summed squared error is smallest.

    Raises:
        ValueError: not as many values as positions, fewer than two different positions, a position not above `shift`, or a value not
            positive and finite.
    """
    if x.ndim != 1 or x.shape != y.shape:
        raise ValueError(f"x has the shape {x.shape} and y {y.shape}: expected one dimension, and a value for each position")
    distances, values = x.astype(np.float64) - shift, y.astype(np.float64)
    if not (np.all(distances > 0) and np.all(np.isfinite(distances))):
        raise ValueError(f"positions must be finite and above the shift, {shift}: the smallest is {x.min() if x.size else None}")
    if not (np.all(values > 0) and np.all(np.isfinite(values))):
        raise ValueError(f"values must be positive and finite: the smallest is {y.min() if y.size else None}")
    if np.unique(distances).size < 2:
        raise ValueError(f"{x.size} points at fewer than two different positions determine no power law")
    columns = np.stack([np.ones_like(distances), -np.log(distances)], axis=1)
    parameters = np.linalg.lstsq(columns, np.log(values), rcond=None)[0]

    def squares(at: Float[np.ndarray, "two"]) -> float:
        with np.errstate(over="ignore"):
            return float(np.square(values - np.exp(columns @ at)).sum())

    best = squares(parameters)
    for _ in range(_MOST_STEPS):
        fitted = np.exp(columns @ parameters)
        step = np.linalg.lstsq(fitted[:, None] * columns, values - fitted, rcond=None)[0]
        while (proposed := squares(parameters + step)) > best and np.abs(step).max() > 1e-15:
            step = step / 2
        if not proposed < best:
            break
        parameters, best = parameters + step, proposed
    return PowerLaw(scale=float(np.exp(parameters[0])), exponent=float(parameters[1]), shift=shift)
