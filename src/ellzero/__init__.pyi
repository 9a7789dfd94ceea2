"""The public names, for type checkers; `__init__.py` resolves them when they are first used."""

from ellzero import (
    attaching as attaching,
    data as data,
    description as description,
    methods as methods,
    models as models,
    plots as plots,
    pruning as pruning,
    records as records,
    surgery as surgery,
    training as training,
    types as types,
)
from ellzero.archive._compress import compress as compress, decompress as decompress, open as open
from ellzero.archive.entries import SaveReport as SaveReport
from ellzero.archive.load import NetworkFile as NetworkFile, load_file as load_file, load_model as load_model, open_file as open_file
from ellzero.archive.save import save_file as save_file, save_model as save_model
from ellzero.attaching import ActiveSet as ActiveSet, Sparsifier as Sparsifier, attach as attach
from ellzero.codec.errors import FormatError as FormatError, LimitError as LimitError
from ellzero.description import mdl_price as mdl_price
from ellzero.files import FileError as FileError
from ellzero.methods import (
    ADMM as ADMM,
    DRR as DRR,
    PMMP as PMMP,
    RL1 as RL1,
    Cosine as Cosine,
    Method as Method,
    Unregularised as Unregularised,
    geometric as geometric,
    ramp as ramp,
)
from ellzero.params import (
    apply_masks_ as apply_masks_,
    count_nonzeros as count_nonzeros,
    count_parameters as count_parameters,
    everything as everything,
    masks_from_zeros as masks_from_zeros,
    select_parameters as select_parameters,
    weights as weights,
)
from ellzero.pruning import (
    ShortestDescription as ShortestDescription,
    Within as Within,
    layerwise_prune_ as layerwise_prune_,
    magnitude_masks as magnitude_masks,
    random_gradient as random_gradient,
    tamade as tamade,
)
from ellzero.quantise._rescale import rescale as rescale
from ellzero.quantise.answers import Answers as Answers
from ellzero.quantise.calibrate import Calibrated as Calibrated
from ellzero.quantise.grids import LogGrid as LogGrid, Quantiser as Quantiser, UniformGrid as UniformGrid
from ellzero.quantise.on_grid import OnGrid as OnGrid
from ellzero.quantise.shared_step import SharedStep as SharedStep
from ellzero.quantise.synthesise import synthetic_inputs as synthetic_inputs
from ellzero.surgery import fold as fold, reorder as reorder, shrink as shrink
from ellzero.targets import Bytes as Bytes, ErrorIncrease as ErrorIncrease, NonZeros as NonZeros
from ellzero.training import (
    Anneal as Anneal,
    Checkpoint as Checkpoint,
    CollapseError as CollapseError,
    Cycles as Cycles,
    Distill as Distill,
    Epochs as Epochs,
    GridTraining as GridTraining,
    Problem as Problem,
    Progress as Progress,
    Recipe as Recipe,
    Saturation as Saturation,
    SparsifyResult as SparsifyResult,
    Warm as Warm,
    classification_error as classification_error,
    classification_loss as classification_loss,
    recalibrate_batchnorm as recalibrate_batchnorm,
    sparsify as sparsify,
)
from ellzero.types import Phase as Phase

__version__: str
