"""Export: a fitted model for where there is no driftree, as ONNX, or as code in Python, C or SQL.

>>> from driftree import DynamicModelTreeClassifier
>>> from driftree.export import to_code
>>> model = DynamicModelTreeClassifier()
>>> for age in range(20, 60):
...     model.learn_one({"age": age}, "old" if age > 40 else "young")
>>> print(to_code(model, "python").splitlines()[5])
def predict(row):
"""

from driftree.export.code import to_code as to_code
from driftree.export.onnx_model import to_onnx as to_onnx
