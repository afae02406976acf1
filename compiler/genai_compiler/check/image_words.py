"""The words of image programs: every spelling the standard has (5.6), and the one that is used from here on."""

RESIZE = {
    "stretch": "stretch", "fixed": "stretch", "fixed_size": "stretch",
    "crop": "crop", "shortest_edge": "crop", "shortest_edge_center_crop": "crop",
    "pad": "pad", "longest_edge_pad": "pad",
    "pixel_area": "pixel_area", "aspect_ratio_patch_budget": "patch_budget",
}  # fmt: skip
NEEDS = {
    "stretch": ("size",),
    "crop": ("size",),
    "pad": ("size",),
    "pixel_area": ("min_pixels", "max_pixels", "size_multiple"),
    "patch_budget": ("patch_size", "max_patches", "pooling_kernel_size"),
}
"""Fields that a resize mode needs; those without `size` forbid it, because they compute one."""

INTERPOLATIONS = {"bicubic": "bicubic", "bilinear": "bilinear", "lanczos": "lanczos3", "lanczos3": "lanczos3"}
TILES = ("dynamic_anyres", "fixed_grid", "dynamic_hd")
THUMBNAILS = ("none", "prepend", "append")
ORDERS = {
    "channel_order": {"channels_first": False, "chw": False, "channels_last": True, "hwc": True},
    "temporal_order": {"channel_major": False, "cthw": False, "temporal_major": True, "tchw": True},
    "patch_order": {"merge_groups": False, "merge_blocks": False, "raster": True, "row_major": True},
    "coordinate_order": {"yx": False, "xy": True},
}
"""The orders of a patchify: each word, and whether it means the second of the two; the first is the default."""

DEFAULT_MAX_TILES = 6
MAX_TILES = 4096
MAX_ENTRIES = 64
MAX_PIXELS = 16 << 20
MAX_ELEMENTS = 64 << 20
FLOAT32_MAX, FLOAT32_LEAST = 3.4028234663852886e38, 2.0**-149

PIXEL_DTYPES = frozenset({"float32", "float16", "bfloat16"})
NUMBER_DTYPES = PIXEL_DTYPES | {"int64", "int32", "int8", "uint8"}
MASK_DTYPES = NUMBER_DTYPES | {"bool"}
"""What pixels, other contents, and a mask may be."""
