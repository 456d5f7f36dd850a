"""The frozen types of the knowledge records, one module a subject: one YAML file holds one record.

Types are strict and closed: an unknown field, or a number written as text, is an error that names the file and the
field. No field is a union: what may be absent is an empty string or an empty list.
"""

from recommender.knowledge.records.advice import (
    Adviser,
    Claim,
    ComparedRuns,
    Disagreement,
    Figure,
    Scenario,
    Setting,
    Thread,
)
from recommender.knowledge.records.base import (
    CodeSource,
    Date,
    Engine,
    Id,
    PageSource,
    Place,
    Record,
    Sources,
    Text,
    Verdict,
    Version,
    VersionOrOpen,
)
from recommender.knowledge.records.benchmarks import Benchmark, BenchmarkRow
from recommender.knowledge.records.estimates import Coefficient, Constraint, Residuals
from recommender.knowledge.records.hardware import Gpu, Rate
from recommender.knowledge.records.models import (
    AudioShape,
    LatentAttention,
    LinearAttention,
    Mixture,
    Model,
    NeededOption,
    PixelRule,
    PublishedSize,
    Quantization,
    QuantizationMethod,
    SparseIndex,
    Support,
    TextShape,
    VisionShape,
    VisionWindow,
    Window,
)
from recommender.knowledge.records.options import (
    Accepted,
    Effect,
    Encoding,
    EngineField,
    Era,
    Flag,
    Option,
    Parameter,
    Reason,
    Release,
)
from recommender.knowledge.records.requests import NamedLoad, Workload
from recommender.knowledge.records.runs import (
    CORES,
    PACKED,
    Digest,
    DrawnLoad,
    FailedRequests,
    Killed,
    MeasuredLoad,
    MeasuredStart,
    Measurement,
    Numbers,
    Phase,
    Readback,
    SmokeRun,
    cores,
    pack,
    unpack,
)
