"""What a document says of a denoising loop: its scheduler (`pipeline.strategy.scheduler_config`).

Closed: a field that is not read could change every step. The fields are those of the documents' own exporter, and the
ones of the scheduler files that it reads, by the names that stand there.
"""

from genai_compiler.read.fields import Closed, Count, Name, Positive


class SchedulerEntry(Closed):
    """Noise levels of the training, and how they are walked back.

    Fields that a document need not state are None; `lower/scheduler.py` says what holds then.
    """

    kind: Name | None = None
    num_train_timesteps: Positive | None = None
    beta_start: float | None = None
    beta_end: float | None = None
    beta_schedule: Name | None = None
    prediction_type: Name | None = None
    use_karras_sigmas: bool = False
    use_exponential_sigmas: bool = False
    timestep_spacing: Name | None = None
    steps_offset: Count | None = None
    set_alpha_to_one: bool | None = None
    final_sigmas_type: Name | None = None
    clip_sample: bool = False
    thresholding: bool = False
    rescale_betas_zero_snr: bool = False
    use_beta_sigmas: bool = False
    use_flow_sigmas: bool = False
    use_dynamic_shifting: bool = False
    flow_shift: float | None = None
    shift: float | None = None
    shift_terminal: float | None = None
    base_shift: float | None = None
    max_shift: float | None = None
    base_image_seq_len: Count | None = None
    max_image_seq_len: Count | None = None
    time_shift_type: Name | None = None
    invert_sigmas: bool = False
    stochastic_sampling: bool = False
