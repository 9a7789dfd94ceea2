"""Networks, each whole in one file, knowing one device, initialised from a generator that the caller owns."""

from ellzero.models.initialise import Initialise, paper_uniform_, pytorch_uniform_
from ellzero.models.lenet import LeNet5Caffe, LeNet300
from ellzero.models.mlp import MLP, DigitsMLP, MLP3x512
from ellzero.models.resnet import ResNet
from ellzero.models.teacher import Student, Teacher
from ellzero.models.vgg import VGG16

__all__ = [
    "MLP",
    "VGG16",
    "DigitsMLP",
    "Initialise",
    "LeNet5Caffe",
    "LeNet300",
    "MLP3x512",
    "ResNet",
    "Student",
    "Teacher",
    "paper_uniform_",
    "pytorch_uniform_",
]
