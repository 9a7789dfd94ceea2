"""The public names, for type checkers; `__init__.py` resolves them when they are first used."""

from ellzero.cli.problem import Problem as Problem
from ellzero.data import (
    Affine as Affine,
)
from ellzero.data import (
    Dataset as Dataset,
)
from ellzero.data import (
    Elastic as Elastic,
)
from ellzero.data import (
    Half as Half,
)
from ellzero.data import (
    Resident as Resident,
)
from ellzero.data import (
    Shifts as Shifts,
)
from ellzero.data import (
    load_digits as load_digits,
)
from ellzero.data import (
    load_fashion_mnist as load_fashion_mnist,
)
from ellzero.data import (
    load_mnist as load_mnist,
)
from ellzero.data import (
    split as split,
)
from ellzero.description import DescriptionLength as DescriptionLength
from ellzero.description import mdl_price as mdl_price
from ellzero.methods import DRR as DRR
from ellzero.methods import RL1 as RL1
from ellzero.methods import Method as Method
from ellzero.methods import Unregularised as Unregularised
from ellzero.methods import geometric as geometric
from ellzero.methods import ramp as ramp
from ellzero.models import MLP as MLP
from ellzero.models import DigitsMLP as DigitsMLP
from ellzero.models import LeNet300 as LeNet300
from ellzero.params import (
    apply_masks_ as apply_masks_,
)
from ellzero.params import (
    count_nonzeros as count_nonzeros,
)
from ellzero.params import (
    count_parameters as count_parameters,
)
from ellzero.params import (
    everything as everything,
)
from ellzero.params import (
    masks_from_zeros as masks_from_zeros,
)
from ellzero.params import (
    select as select,
)
from ellzero.params import (
    weights as weights,
)
from ellzero.plots import draw_network as draw_network
from ellzero.plots import plot_curves as plot_curves
from ellzero.pruning import (
    Better as Better,
)
from ellzero.pruning import (
    ShortestDescription as ShortestDescription,
)
from ellzero.pruning import (
    Shrunk as Shrunk,
)
from ellzero.pruning import (
    Within as Within,
)
from ellzero.pruning import (
    fold as fold,
)
from ellzero.pruning import (
    fold_ as fold_,
)
from ellzero.pruning import (
    magnitude_masks as magnitude_masks,
)
from ellzero.pruning import (
    random_gradient as random_gradient,
)
from ellzero.pruning import (
    rebind_ as rebind_,
)
from ellzero.pruning import (
    shrink as shrink,
)
from ellzero.pruning import (
    tamade as tamade,
)
from ellzero.records import (
    Record as Record,
)
from ellzero.records import (
    append_line as append_line,
)
from ellzero.records import (
    read_lines as read_lines,
)
from ellzero.records import (
    versions as versions,
)
from ellzero.records import (
    write_json as write_json,
)
from ellzero.training import (
    Anneal as Anneal,
)
from ellzero.training import (
    Checkpoint as Checkpoint,
)
from ellzero.training import (
    Cosine as Cosine,
)
from ellzero.training import (
    Cycles as Cycles,
)
from ellzero.training import (
    Distill as Distill,
)
from ellzero.training import (
    Epochs as Epochs,
)
from ellzero.training import (
    ErrorIncrease as ErrorIncrease,
)
from ellzero.training import (
    NonZeros as NonZeros,
)
from ellzero.training import (
    Saturation as Saturation,
)
from ellzero.training import (
    Sparse as Sparse,
)
from ellzero.training import (
    Sparsifier as Sparsifier,
)
from ellzero.training import (
    Warm as Warm,
)
from ellzero.training import (
    attach as attach,
)
from ellzero.training import (
    classification_error as classification_error,
)
from ellzero.training import (
    classification_loss as classification_loss,
)
from ellzero.training import (
    saturated as saturated,
)
from ellzero.training import (
    sparsify as sparsify,
)
from ellzero.types import At as At
from ellzero.types import Masks as Masks
from ellzero.types import Params as Params
from ellzero.types import Phase as Phase

__version__: str
