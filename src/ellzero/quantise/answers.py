"""What a network's answers are, and how far apart two of them lie, in nats."""

import enum
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

_UNLIKE = 0.1
"""Nats by which logits of different inputs diverge at least in a trained classifier; untrained ones and embeddings are below."""
_SURE = 0.2
"""How far the probability of the likeliest class lies above chance at least, on average, from 0 for chance to 1 for certainty."""


class Answers(enum.Enum):
    """What the answers of a network are, which no network says: pass it to `Calibrated(answers=...)`.

    Attributes:
        LOGITS: of classes, [samples, classes]: only their differences within a sample count.
        PROBABILITIES: of classes, [samples, classes], as after a softmax.
        EMBEDDINGS: vectors along the last dimension, compared by their cosine.
        VALUES: numbers of which each counts by itself, in units of how it varies over samples: regression, images, signals.
    """

    LOGITS = "logits"
    PROBABILITIES = "probabilities"
    EMBEDDINGS = "embeddings"
    VALUES = "values"


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Reads answers as what they are.

    Attributes:
        kind: what they are.
        temperature: divides logits, because networks are too sure of what they were trained on.
        scale: of embeddings and values, chosen so that answers to different inputs diverge by 1 nat on average.
        shuffled: nats by which answers to different inputs diverge, per sample on average.
    """

    kind: Answers
    temperature: float = 1.0
    scale: float = 1.0
    shuffled: float = 1.0

    def divergence(self, answer: Tensor, reference: Tensor) -> Tensor:
        """Sums over samples how far answers are from others, in nats; the measure whose second derivative `sampled_gradient` samples."""
        if self.kind in (Answers.LOGITS, Answers.PROBABILITIES):
            wanted = self._logits(reference).log_softmax(1)
            return (wanted.exp() * (wanted - self._logits(answer).log_softmax(1))).sum()
        if self.kind is Answers.EMBEDDINGS:
            answer, reference = _unit(answer), _unit(reference)
        return (answer - reference).square().sum() / (2 * self._variance(answer))

    def sampled_gradient(self, answer: Tensor, generator: torch.Generator) -> Tensor:
        """Draws a random gradient whose covariance is the second derivative of the divergence from the answer.

        For classes one is drawn from their probabilities and its log-likelihood differentiated; all others are means of Gaussians:
        random signs over the standard deviation.

        Args:
            answer: of the network.
            generator: draws.
        """
        with torch.no_grad():
            if self.kind in (Answers.LOGITS, Answers.PROBABILITIES):
                chances = self._logits(answer).softmax(1)
                drawn = torch.multinomial(chances.cpu(), 1, generator=generator).to(answer.device)
                slope = chances.scatter_add(1, drawn, -torch.ones_like(chances[:, :1])) / self.temperature
                return slope if self.kind is Answers.LOGITS else slope / (answer + _TINY)
            signs = torch.randint(0, 2, answer.shape, generator=generator).to(answer) * 2 - 1
            if self.kind is Answers.EMBEDDINGS:
                unit = _unit(answer)
                signs = (signs - unit * (unit * signs).sum(-1, keepdim=True)) / answer.norm(dim=-1, keepdim=True).clamp_min(_TINY)
            return signs / self._variance(answer) ** 0.5

    def _logits(self, answer: Tensor) -> Tensor:
        return (answer if self.kind is Answers.LOGITS else (answer + _TINY).log()) / self.temperature

    def _variance(self, answer: Tensor) -> float:
        """Of one number, for a divergence of 1 nat per sample between answers to different inputs."""
        count = answer[0].numel() if self.kind is Answers.VALUES else answer[0].numel() // answer.shape[-1]
        return max(self.scale * count, 1e-24)


_TINY = 1e-8


def _unit(vectors: Tensor) -> Tensor:
    return vectors / vectors.norm(dim=-1, keepdim=True).clamp_min(_TINY)


def first_tensor(output: Any) -> Tensor:
    """Returns the first tensor of a network's output.

    Raises:
        ValueError: the output holds no tensor.
    """
    if isinstance(output, Tensor):
        return output
    parts = output.values() if isinstance(output, Mapping) else output if isinstance(output, (tuple, list)) else ()
    for part in parts:
        if isinstance(part, Tensor):
            return part
    raise ValueError(f"the model answers {type(output).__name__} without a tensor: pass forward= that returns one")


@torch.no_grad()
def read_answers(answers: Sequence[Tensor], kind: Answers | None, temperature: float) -> Reading:
    """Finds out how answers are to be read.

    Args:
        answers: of a network to its batches, at least two samples.
        kind: what they are; None for what they show. Rows of two or more numbers are probabilities where each row sums to 1, embeddings
            where each is a unit vector, and logits where they mark a class clearly and another one for other inputs. Everything but
            rows is values.
        temperature: for logits.

    Raises:
        ValueError: answers are not finite, do not depend on the inputs, do not fit what they are said to be, or it is not clear what
            they are; the message says what to do.
    """
    groups = _together(answers)
    shape = tuple(groups[0].shape)
    if not all(bool(group.isfinite().all()) for group in groups):
        raise ValueError("the network's answers to these inputs are not finite: calibrate on inputs that it was made for")
    rows = groups[0].ndim == 2 and shape[1] > 1 and len(groups) == 1
    if kind in (Answers.LOGITS, Answers.PROBABILITIES) and not rows:
        raise ValueError(
            f"answers of shape {shape} are read as {kind.value}, which are [samples, classes]: pass forward= that returns these, "
            "or answers=Answers.VALUES"
        )
    found = kind or (_kind_of(groups[0]) if rows else Answers.VALUES)
    if found in (Answers.LOGITS, Answers.PROBABILITIES):
        scale, shuffled = 1.0, _shuffled(groups, Reading(kind=found, temperature=temperature))
    else:
        # In units in which answers to different inputs diverge by 1 nat.
        scale = _shuffled(groups, Reading(kind=found))
        shuffled = 1.0 if scale > 0 else 0.0
    if kind is None and found is Answers.LOGITS and not (shuffled >= _UNLIKE and _certainty(groups[0]) >= _SURE):
        raise ValueError(
            f"it is not clear what answers of shape {shape} are: as logits, those to different inputs diverge by {shuffled:.2g} nats "
            f"(expected {_UNLIKE} or more) and mark a class with a certainty of {_certainty(groups[0]):.2g} (expected {_SURE} or more): "
            "say what they are, answers=Answers.EMBEDDINGS, VALUES or LOGITS (--answers)"
        )
    if not shuffled > 0:
        raise ValueError("the network answers the same to all inputs, so that nothing is learnt from them: pass others, or forward=")
    return Reading(kind=found, temperature=temperature, scale=scale, shuffled=shuffled)


@torch.no_grad()
def compare_answers(found: Sequence[Tensor], wanted: Sequence[Tensor], reading: Reading) -> tuple[float, str]:
    """Compares answers with those wanted.

    Args:
        found: answers to batches.
        wanted: answers to the same batches.
        reading: of the latter.

    Returns:
        Their divergence over that of answers to different inputs, and the difference in words.
    """
    pairs = [(one.double(), other.double()) for one, other in zip(found, wanted, strict=True)]
    samples = sum(len(one) for one, _ in pairs)
    nats = math.fsum(float(reading.divergence(one, other)) for one, other in pairs) / samples
    if reading.kind in (Answers.LOGITS, Answers.PROBABILITIES):
        others = sum(int((one.argmax(1) != other.argmax(1)).sum()) for one, other in pairs)
        words = f"another likeliest class for {others} of {samples} samples"
    elif reading.kind is Answers.EMBEDDINGS:
        cosines = torch.cat([(_unit(one) * _unit(other)).sum(-1).flatten() for one, other in pairs])
        words = f"a mean cosine of {float(cosines.mean()):.3g} between old and new, {samples} samples"
    else:
        error = sum(float((one - other).square().sum()) for one, other in pairs) / sum(one.numel() for one, _ in pairs)
        words = f"a root mean square of {error**0.5:.3g}, {samples} samples"
    return nats / reading.shuffled, words


def _kind_of(rows: Tensor) -> Answers:
    if bool((rows >= 0).all()) and bool(((rows.sum(1) - 1).abs() < 1e-3).all()):
        return Answers.PROBABILITIES
    return Answers.EMBEDDINGS if bool(((rows.norm(dim=1) - 1).abs() < 1e-2).all()) else Answers.LOGITS


def _certainty(logits: Tensor) -> float:
    """Measures how far the probability of the likeliest class lies above chance, on average, from 0 to 1."""
    chance = 1 / logits.shape[1]
    return (float(logits.softmax(1).amax(1).mean()) - chance) / (1 - chance)


def _together(answers: Sequence[Tensor]) -> list[Tensor]:
    """Joins the answers to all batches where they are of one shape."""
    plain = [(answer if answer.is_floating_point() else answer.float()).detach() for answer in answers]
    if len({answer.shape[1:] for answer in plain}) == 1:
        plain = [torch.cat(plain)]
    if not any(len(answer) > 1 for answer in plain):
        raise ValueError("answers of a single sample show nothing of how they differ: pass a hundred or so, several in a batch")
    return plain


def _pairs(groups: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
    """Pairs answers with those to other inputs, half of a batch away, because batches may be sorted."""
    return ((group, group.roll(len(group) // 2, 0)) for group in groups if len(group) > 1)


def _shuffled(groups: Sequence[Tensor], reading: Reading) -> float:
    """Computes by how many nats answers to different inputs diverge, per sample."""
    pairs = list(_pairs(groups))
    total = math.fsum(float(reading.divergence(one.double(), other.double())) for one, other in pairs)
    return total / sum(len(one) for one, _ in pairs)
