"""What a package may set in ONNX Runtime: lists of what is known to be harmless, since native code takes it as it is.

An option takes part in no list when it names a file, folder or library, carries an address (allocators, streams,
contexts), writes something, reaches the network, or changes what the runtime's own loop relies on (graph capture). An
option that a later ONNX Runtime brings is left out until somebody has looked at it.
"""

ATTRIBUTES = (
    "intra_op_num_threads", "inter_op_num_threads", "log_severity_level", "log_verbosity_level",
    "enable_cpu_mem_arena", "enable_mem_pattern", "log_id", "graph_optimization_level",
)  # fmt: skip
"""Fields of SessionOptions; everything else that a session may be told is an entry, with a dot in its name."""

ENTRIES = frozenset(
    """
    session.disable_prepacking session.prepack.enable_parallel session.use_env_allocators
    session.use_device_allocator_for_initializers session.set_denormal_as_zero session.use_deterministic_compute
    session.inter_op.allow_spinning session.inter_op.spin_duration_us session.inter_op.spin_backoff_max
    session.intra_op.allow_spinning session.intra_op.spin_duration_us session.intra_op.spin_backoff_max
    session.force_spinning_stop session.dynamic_block_base session.execution_mode
    session.disable_quant_qdq session.disable_double_qdq_remover session.enable_quant_qdq_cleanup
    session.disable_qdq_constant_folding session.enable_dq_matmulnbits_fusion
    session.qdq_matmulnbits_accuracy_level session.qdq_matmulnbits_block_size
    session.qdqisint8allowed session.x64quantprecision
    session.disable_aot_function_inlining session.graph_optimizations_loop_level
    session.strict_shape_type_inference session.allow_released_opsets_only
    session.disable_cpu_ep_fallback session.disable_model_compile session.fail_on_suboptimal_compiled_model
    optimization.enable_gelu_approximation optimization.enable_cast_chain_elimination
    optimization.disable_specified_optimizers optimization.constant_folding_max_output_size_in_bytes
    mlas.enable_gemm_fastmath_arm64_bfloat16 mlas.use_lut_gemm mlas.disable_kleidiai mlas.qnbit.force_fp32
    """.split()  # noqa: SIM905
)
"""Session configuration entries (onnxruntime_session_options_config_keys.h)."""

_ARENA = "device_id arena_extend_strategy gpu_mem_limit do_copy_in_default_stream"
_TUNED = "tunable_op_enable tunable_op_tuning_enable tunable_op_max_tuning_duration_ms"
_WEBGPU = """
    preferredLayout deviceId powerPreference enableInt64 enableMatmulFp32Accumulation forceCpuNodeNames
    storageBufferCacheMode uniformBufferCacheMode queryResolveBufferCacheMode defaultBufferCacheMode
    maxStorageBufferBindingSize maxNumPendingDispatches
"""
_TUNING = {
    "CUDA": f"""{_ARENA} {_TUNED} cudnn_conv_algo_search cudnn_conv_use_max_workspace cudnn_conv1d_pad_to_nc1d
        enable_skip_layer_norm_strict_mode use_tf32 prefer_nhwc use_ep_level_unified_stream fuse_conv_bias
        sdpa_kernel""",
    "ROCM": f"{_ARENA} {_TUNED} miopen_conv_exhaustive_search miopen_conv_use_max_workspace",
    "MIGraphX": """device_id migraphx_fp16_enable migraphx_bf16_enable migraphx_fp8_enable migraphx_exhaustive_tune
        migraphx_mem_limit migraphx_arena_extend_strategy""",
    "Tensorrt": """device_id trt_max_partition_iterations trt_min_subgraph_size trt_max_workspace_size trt_fp16_enable
        trt_bf16_enable trt_dla_enable trt_dla_core trt_force_sequential_engine_build
        trt_context_memory_sharing_enable trt_layer_norm_fp32_fallback trt_sparsity_enable
        trt_builder_optimization_level trt_auxiliary_streams trt_profile_min_shapes trt_profile_max_shapes
        trt_profile_opt_shapes""",
    "NvTensorRTRTX": """device_id nv_max_workspace_size nv_max_shared_mem_size nv_profile_min_shapes
        nv_profile_max_shapes nv_profile_opt_shapes nv_multi_profile_enable""",
    "Dml": "device_id performance_preference device_filter disable_metacommands",
    "QNN": """backend_type device_id htp_performance_mode htp_graph_finalization_optimization_mode htp_arch soc_model
        vtcm_mb qnn_context_priority rpc_control_latency enable_htp_fp16_precision offload_graph_io_quantization""",
    "WebGpu": _WEBGPU + " ".join(f"ep.webgpuexecutionprovider.{each}" for each in _WEBGPU.split()),
    "OpenVINO": """device_type device_id precision num_of_threads num_streams disable_dynamic_shapes model_priority
        enable_opencl_throttling enable_qdq_optimizer""",
    "CoreML": """ModelFormat MLComputeUnits RequireStaticInputShapes EnableOnSubgraphs SpecializationStrategy
        AllowLowPrecisionAccumulationOnGPU""",
    "Xnnpack": "intra_op_num_threads",
    "Dnnl": "use_arena",
    "ACL": "enable_fast_math",
    "CANN": """device_id npu_mem_limit arena_extend_strategy do_copy_in_default_stream precision_mode
        op_select_impl_mode""",
}
TUNING = {f"{name}ExecutionProvider": frozenset(options.split()) for name, options in _TUNING.items()}
"""Per execution provider the options that tune it; one that is absent takes none from a package."""

CAPTURE = frozenset(
    """
    enable_cuda_graph nv_cuda_graph_enable trt_cuda_graph_enable enable_graph_capture enableGraphCapture
    ep.webgpuexecutionprovider.enableGraphCapture
    """.split()  # noqa: SIM905
)
"""Graph capture replays a run whatever shapes the next one has. It is off; a package that says so has said nothing."""
