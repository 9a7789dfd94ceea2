"""The public names, for type checkers; `__init__.py` resolves them when they are first used."""

from ellzero import (
    data as data,
    description as description,
    methods as methods,
    models as models,
    plots as plots,
    pruning as pruning,
    records as records,
    surgery as surgery,
    training as training,
)
from ellzero.archive._compress import compress as compress, decompress as decompress, open as open
from ellzero.archive.entries import Report as Report
from ellzero.archive.load import NetworkFile as NetworkFile, load_file as load_file, load_model as load_model, open_file as open_file
from ellzero.archive.save import save_file as save_file, save_model as save_model
from ellzero.attaching import ActiveSet as ActiveSet, Sparsifier as Sparsifier, attach as attach, saturated as saturated
from ellzero.codec.errors import FormatError as FormatError, LimitError as LimitError
from ellzero.data import (
    Affine as Affine,
    Dataset as Dataset,
    Elastic as Elastic,
    Part as Part,
    Resident as Resident,
    Shifts as Shifts,
    load_cifar10 as load_cifar10,
    load_digits as load_digits,
    load_fashion_mnist as load_fashion_mnist,
    load_from_hub as load_from_hub,
    load_mnist as load_mnist,
    split as split,
    teacher_samples as teacher_samples,
)
from ellzero.description import (
    DescriptionLength as DescriptionLength,
    OnlineCode as OnlineCode,
    PowerLaw as PowerLaw,
    fit_power_law as fit_power_law,
    mdl_price as mdl_price,
    online_code as online_code,
)
from ellzero.files import FileError as FileError
from ellzero.methods import (
    ADMM as ADMM,
    DRR as DRR,
    PMMP as PMMP,
    RL1 as RL1,
    Alternating as Alternating,
    ExactGates as ExactGates,
    Method as Method,
    PerModule as PerModule,
    PerStage as PerStage,
    Simultaneous as Simultaneous,
    Unregularised as Unregularised,
    admm_masks as admm_masks,
    geometric as geometric,
    lasso as lasso,
    linear_l0 as linear_l0,
    pmmp_masks as pmmp_masks,
    ramp as ramp,
    relaxed_lasso as relaxed_lasso,
    undecided as undecided,
)
from ellzero.models import (
    MLP as MLP,
    VGG16 as VGG16,
    DigitsMLP as DigitsMLP,
    LeNet5Caffe as LeNet5Caffe,
    LeNet300 as LeNet300,
    MLP3x512 as MLP3x512,
    ResNet as ResNet,
    Student as Student,
    Teacher as Teacher,
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
from ellzero.plots import draw_network as draw_network, plot_curves as plot_curves
from ellzero.pruning import (
    Better as Better,
    ShortestDescription as ShortestDescription,
    Within as Within,
    layerwise_prune_ as layerwise_prune_,
    magnitude_masks as magnitude_masks,
    random_gradient as random_gradient,
    tamade as tamade,
)
from ellzero.quantise._rescale import rescale as rescale
from ellzero.quantise._shared_step import SharedStep as SharedStep, shared_step as shared_step
from ellzero.quantise.calibrate import Calibrated as Calibrated, CalibratedModel as CalibratedModel
from ellzero.quantise.grids import LogGrid as LogGrid, Quantiser as Quantiser, UniformGrid as UniformGrid
from ellzero.quantise.on_grid import OnGrid as OnGrid
from ellzero.quantise.synthesise import synthetic_inputs as synthetic_inputs
from ellzero.records import (
    Record as Record,
    append_line as append_line,
    read_lines as read_lines,
    versions as versions,
    write_json as write_json,
)
from ellzero.surgery import Shrunk as Shrunk, fold as fold, fold_ as fold_, rebind_ as rebind_, reorder as reorder, shrink as shrink
from ellzero.targets import Bytes as Bytes, ErrorIncrease as ErrorIncrease, NonZeros as NonZeros
from ellzero.training import (
    Anneal as Anneal,
    Checkpoint as Checkpoint,
    Cosine as Cosine,
    Cycles as Cycles,
    Distill as Distill,
    Epochs as Epochs,
    GaussianLoss as GaussianLoss,
    GridTraining as GridTraining,
    Saturation as Saturation,
    SparsifyResult as SparsifyResult,
    Warm as Warm,
    classification_error as classification_error,
    classification_loss as classification_loss,
    recalibrate_batchnorm as recalibrate_batchnorm,
    solved_gaussian_nats as solved_gaussian_nats,
    sparsify as sparsify,
)
from ellzero.training.problem import Problem as Problem
from ellzero.types import At as At, Masks as Masks, Params as Params, Phase as Phase

__version__: str
