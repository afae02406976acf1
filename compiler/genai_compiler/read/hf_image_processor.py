"""The flat keys of a Hugging Face image processor (preprocessor_config.json) -> operations of the one kind.

What a key switches off is left out; what a class does beyond the keys, and no key tells, is refused by name.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from genai_compiler.read.config_json import Json
from genai_compiler.read.image_operations import Attributes, numbers_fault
from genai_compiler.read.places import DocPath, as_written

Refuse = Callable[[DocPath, str, str], None]
_FILTERS = {0: "NEAREST", 1: "LANCZOS", 2: "LINEAR", 3: "CUBIC"}
_NAMES = {"nearest": "NEAREST", "lanczos": "LANCZOS", "bilinear": "LINEAR", "bicubic": "CUBIC"}
_TEMPORAL = 2


_OFFERED = frozenset({
    "do_resize", "do_center_crop", "do_rescale", "do_normalize", "do_convert_rgb", "do_flip_channel_order"
})  # fmt: skip
"""What is done, or is without effect on files: whatever else a class does is not followed."""
_OF_PICTURES = (_OFFERED - {"do_normalize"}) | {"do_pad", "do_thumbnail"}
"""What is done to pictures alone: a file that states one is of pictures, unless it tells of sound."""
_OF_SOUND = frozenset({"sampling_rate", "feature_size", "feature_extraction"})
_INNER = "image_processor"
_NEAR = 1e-6


def hf_image(root: Json) -> tuple[Mapping[str, Json], DocPath] | None:
    """(the members of an image processor, where they stand), None where neither a file nor its part is one."""
    if not isinstance(root, dict):
        return None
    if "image_processor_type" in root or ("image_mean" in root and "size" in root):
        return root, ()
    inner = root.get(_INNER)
    found = hf_image(inner) if isinstance(inner, dict) and _INNER not in inner else None
    if found is not None:
        return found[0], (_INNER,)
    return (root, ()) if root.keys() & _OF_PICTURES and not root.keys() & _OF_SOUND else None


def hf_operations(root: Mapping[str, Json], refuse: Refuse) -> Iterator[tuple[str, Attributes, str]]:
    """(what is done, attributes, the key that asks for it). refuse: told of what can't be followed."""
    for key in (each for each in root if each.startswith("do_") and each not in _OFFERED):
        if root[key] is True:
            refuse((key,), f"{key} is not offered", "make the tensors with the model's own processor")
    yield "decode", {"color_space": "RGB"}, ""
    if "max_soft_tokens" in root:
        yield from _budget(root, refuse)
        return
    if root.get("do_resize", True):
        yield from _resize(root, refuse)
    if "crop_size" in root and "do_center_crop" not in root:
        what = "crop_size is stated and do_center_crop is not: whether pictures are cut is a matter of the class"
        refuse(("crop_size",), what, "state do_center_crop")
    elif root.get("do_center_crop", False):
        size = _size(root.get("crop_size"))
        if size is None:
            refuse(("crop_size",), "do_center_crop needs crop_size, with height and width", "")
        else:
            yield "crop", {"height": size[0], "width": size[1]}, "crop_size"
    if root.get("do_flip_channel_order", False):
        yield "swap", {}, "do_flip_channel_order"
    if root.get("do_rescale", True):
        factor = root.get("rescale_factor", 1 / 255)
        if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor < 1e6:
            refuse(("rescale_factor",), f"rescale_factor is {as_written(factor)}: a number above 0", "")
        else:
            yield "rescale", {"rescale_factor": float(factor)}, "rescale_factor"
    if root.get("do_normalize", True):
        yield from _normalize(root, refuse)
    patch, merge = root.get("patch_size"), root.get("merge_size")
    for key, most in (("patch_size", 1 << 14), ("merge_size", 64), ("temporal_patch_size", 64)):
        if _whole(root.get(key)) and int(str(root[key])) > most:
            refuse((key,), f"{key} is {root[key]}: from 1 to {most}", "")
            return
    if _whole(patch) and _whole(merge):
        frames = root.get("temporal_patch_size", _TEMPORAL)
        sizes = {"patch_size": patch, "temporal_patch_size": frames, "merge_size": merge}
        if all(map(_whole, sizes.values())):
            yield "patches", sizes, "patch_size"
            return
    yield "permute", {"dims": (2, 0, 1)}, ""


def _budget(root: Mapping[str, Json], refuse: Refuse) -> Iterator[tuple[str, Attributes, str]]:
    """Patches under a budget of entries, of levels from 0 to 1, resampled by cubes: nothing else is offered of them."""
    sizes = {
        key: root[key] for key in ("patch_size", "max_soft_tokens", "pooling_kernel_size") if _whole(root.get(key))
    }
    if len(sizes) < 3:
        what = "patches under a budget need the whole numbers patch_size, max_soft_tokens and pooling_kernel_size"
        refuse(("max_soft_tokens",), what, "")
        return
    if _filter(root.get("resample"), refuse) != "CUBIC":
        refuse(("resample",), "patches under a budget are resampled by cubes (3)", "")
    factor = root.get("rescale_factor", 1 / 255)
    near = isinstance(factor, int | float) and not isinstance(factor, bool) and abs(factor - 1 / 255) < _NEAR
    if not near or root.get("do_rescale", True) is not True:
        refuse(("rescale_factor",), "patches under a budget are numbers from 0 to 1", "")
    plain = root.get("image_mean") == [0, 0, 0] and root.get("image_std") == [1, 1, 1]
    if root.get("do_normalize", True) and not plain:
        refuse(("do_normalize",), "patches under a budget are not normalised", "")
    yield "budget", sizes, "max_soft_tokens"


def _resize(root: Mapping[str, Json], refuse: Refuse) -> Iterator[tuple[str, Attributes, str]]:
    """To height and width, to a shortest edge, or to an area between two bounds where patches are merged."""
    size = root.get("size")
    known = size if isinstance(size, dict) else {}
    attributes: dict[str, Any] = {"interpolation": _filter(root.get("resample"), refuse), "smart_resize": 0}
    patch, merge = root.get("patch_size"), root.get("merge_size")
    least = known.get("min_pixels", known.get("shortest_edge", root.get("min_pixels")))
    most = known.get("max_pixels", known.get("longest_edge", root.get("max_pixels")))
    fixed = _size(size)
    if _whole(size) and root.get("do_center_crop", False):
        what = f"size is {size}: whether that is a shortest edge or both edges is a matter of the class"
        refuse(("size",), what, 'write {"shortest_edge": ...} or {"height": ..., "width": ...}')
        return
    if _whole(patch) and _whole(merge) and _whole(least) and _whole(most):
        bounds = {"min_pixels": least, "max_pixels": most, "patch_size": patch, "merge_size": merge}
        yield "resize", {**attributes, **bounds, "smart_resize": 1, "half_even": 1, "height": 1, "width": 1}, "size"
    elif fixed is not None:
        yield "resize", {**attributes, "height": fixed[0], "width": fixed[1]}, "size"
    elif set(known) == {"shortest_edge"} and _whole(known["shortest_edge"]):
        yield "resize", {**attributes, "shortest": known["shortest_edge"]}, "size"
    else:
        refuse(("size",), f"the size {as_written(size)} is none that can be followed", "state height and width")


def _normalize(root: Mapping[str, Json], refuse: Refuse) -> Iterator[tuple[str, Attributes, str]]:
    found: dict[str, Any] = {"swaps": False}
    for key, name in (("image_mean", "mean"), ("image_std", "std")):
        if key not in root:
            what = f"{key} is not stated, and is a matter of the class"
            refuse((key,), what, "state image_mean and image_std, or do_normalize as false")
            return
        if fault := numbers_fault(name, root[key]):
            refuse((key,), f"{key} {fault}", "")
            return
        found[name] = tuple(map(float, cast(list[float], root[key])))
    yield "normalize", found, "image_mean"


def _filter(value: Json, refuse: Refuse) -> str:
    """Which one is a matter of the class where no key says: bilinear here, bicubic there."""
    named = _NAMES.get(value.lower()) if isinstance(value, str) else None
    found = _FILTERS.get(value) if isinstance(value, int) and not isinstance(value, bool) else named
    if found is None:
        what = (
            f"resample is {as_written(value)}, which is not offered" if value is not None else "resample is not stated"
        )
        refuse(("resample",), what, "write 0 for nearest, 1 for lanczos, 2 for bilinear, 3 for bicubic")
    return found or "CUBIC"


def _size(value: Json) -> tuple[int, int] | None:
    if isinstance(value, dict) and _whole(value.get("height")) and _whole(value.get("width")):
        return cast(int, value["height"]), cast(int, value["width"])
    return (cast(int, value), cast(int, value)) if _whole(value) else None


def _whole(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 28
