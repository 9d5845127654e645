/* The C interface of quaver: casts, quantized matrices, linear layers, training and the tables of runs.
 *
 * Every function that can fail returns a quaver_status; quaver_last_error() and quaver_last_remedy() then say what
 * happened and what helps, per thread. Handles are freed by the function of their name, which takes NULL too; no two
 * threads may use one at the same time, unless both only read a quaver_matrix or a quaver_store. Text is UTF-8. Arrays
 * are contiguous and row-major; the caller says how long they are, and a wrong length is an error.
 */
#ifndef QUAVER_QUAVER_H
#define QUAVER_QUAVER_H

#include <stddef.h>
#include <stdint.h>

#include "quaver/version.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Grows when a function or struct of this header changes. A program built with this header needs
 * quaver_abi_version() == QUAVER_ABI_VERSION. */
#define QUAVER_ABI_VERSION 3
uint32_t quaver_abi_version(void);
const char* quaver_version(void); /* "0.1.0" */

/* QUAVER_INVALID: an argument of the call is wrong. QUAVER_FAILED: the work failed. */
typedef enum quaver_status {
  QUAVER_OK = 0,
  QUAVER_INVALID = 1,
  QUAVER_FAILED = 2,
  QUAVER_OUT_OF_MEMORY = 3
} quaver_status;

/* Of the latest call of this thread that failed; valid until its next one does. Never NULL. */
const char* quaver_last_error(void);
const char* quaver_last_remedy(void);

/* --- Formats --------------------------------------------------------------------------------------------------- */

typedef int32_t quaver_format;
enum {
  QUAVER_F32,
  QUAVER_TF32,
  QUAVER_BF16,
  QUAVER_F16,
  QUAVER_E4M3,
  QUAVER_E5M2,
  QUAVER_E2M1,
  QUAVER_E3M4,
  QUAVER_E3M2,
  QUAVER_E2M3,
  QUAVER_INT8,
  QUAVER_FORMATS
};

typedef struct quaver_format_info {
  const char* name;
  int32_t storage_bits;
  int32_t exponent_bits;
  int32_t mantissa_bits;
  int32_t bias;
  float max;
  float min_normal;
  float min_subnormal;
  int32_t has_infinity;
  int32_t has_nan;
} quaver_format_info;

quaver_status quaver_format_by_name(const char* name, quaver_format* out);
quaver_status quaver_describe_format(quaver_format format, quaver_format_info* out);

/* The nearest value of the format to each x, ties to even, saturating: no scale. out may be x. */
quaver_status quaver_cast(quaver_format format, const float* x, float* out, size_t count);
/* The same as codes, in the low bits of each word, and back. */
quaver_status quaver_encode(quaver_format format, const float* x, uint32_t* codes, size_t count);
quaver_status quaver_decode(quaver_format format, const uint32_t* codes, float* out, size_t count);

/* --- Quantized matrices ---------------------------------------------------------------------------------------- */

enum {
  QUAVER_SCALE_F32,
  QUAVER_SCALE_POWER_OF_TWO,
  QUAVER_SCALE_E8M0,
  QUAVER_SCALE_E8M0_FLOOR,
  QUAVER_SCALE_E4M3,
  QUAVER_SCALE_E4M3_4OVER6
};
enum { QUAVER_UNSCALED, QUAVER_CURRENT, QUAVER_DELAYED, QUAVER_STATIC };
enum { QUAVER_NEAREST_EVEN, QUAVER_STOCHASTIC };
enum { QUAVER_NO_ROTATION, QUAVER_HADAMARD };
enum { QUAVER_ROWWISE, QUAVER_COLUMNWISE };
enum { QUAVER_COUNTS, QUAVER_FULL_STATISTICS };

/* How a matrix is quantized. Blocks: 0 × 0 is the whole tensor, 1 × 0 a row; 1 × 128, 128 × 128, 1 × 32, 1 × 16,
 * 16 × 16. The members hold the enumerators above. */
typedef struct quaver_spec {
  quaver_format format;
  int32_t block_rows;
  int32_t block_cols;
  int32_t scale_format;
  int32_t policy;
  int32_t rounding;
  int32_t rotation;
  int32_t margin;
  float shrink;
} quaver_spec;

typedef struct quaver_cast_settings {
  quaver_spec spec;
  int32_t side;
  int32_t detail;
  float scale; /* s in q = cast(x * s) for delayed and static scaling; 0: from the matrix itself */
  uint32_t step;
  uint64_t seed; /* of stochastic rounding and random signs, with step and stream */
  uint32_t stream;
} quaver_cast_settings;

/* E4M3 with one current scale per tensor, rowwise, rounded to nearest. */
void quaver_default_cast(quaver_cast_settings* settings);

#define QUAVER_BINADES 64
typedef struct quaver_statistics {
  uint64_t count;
  uint64_t nonfinite;
  uint64_t saturated;
  uint64_t underflowed;
  float amax;
  int32_t full; /* whether what follows was collected */
  float min_nonzero;
  double mean;
  double standard_deviation;
  double kurtosis;
  double sqnr_db;
  uint64_t binades[QUAVER_BINADES]; /* |x| in [2^(i-40), 2^(i-39)); the ends take what lies beyond */
} quaver_statistics;

typedef struct quaver_matrix quaver_matrix;

/* The pointers are valid as long as the matrix. value(r, c) = decode(code) * block_scale * tensor_scale. */
typedef struct quaver_matrix_view {
  quaver_format format;
  int64_t rows; /* of the codes: those of the transpose where cast columnwise */
  int64_t cols;
  int64_t row_bytes; /* FP4 two to a byte, low nibble first */
  const uint8_t* codes;
  int64_t scale_rows;
  int64_t scale_cols;
  const float* block_scales; /* NULL for one scale per tensor */
  float tensor_scale;        /* NaN on a GPU */
  const float* tensor_scale_address;
  int32_t on_gpu; /* the addresses are those of a GPU's memory */
} quaver_matrix_view;

quaver_status quaver_quantize(const float* x, int64_t rows, int64_t cols, const quaver_cast_settings* settings,
                              quaver_matrix** out);
void quaver_matrix_free(quaver_matrix* matrix);
quaver_status quaver_matrix_get(const quaver_matrix* matrix, quaver_matrix_view* out);
quaver_status quaver_matrix_statistics(const quaver_matrix* matrix, quaver_statistics* out);
/* rows * cols floats, rotation undone. */
quaver_status quaver_dequantize(const quaver_matrix* matrix, float* out, size_t count);
/* out[M x N] = a[M x K] * transpose(b[N x K]), with dequantization, summed in FP32. */
quaver_status quaver_gemm(const quaver_matrix* a, const quaver_matrix* b, float* out, size_t count);

/* The same in place, in the memory of a device: matrices of QUAVER_F32, or on a GPU QUAVER_BF16 too, where they begin
 * at multiples of 16 bytes. A GPU's work goes onto the stream, a cudaStream_t (NULL: CUDA's default stream), and the
 * calls return before it has run. Bit for bit the codes, scales and statistics of the host's casts. */

enum { QUAVER_DEVICE_AUTO, QUAVER_DEVICE_CPU, QUAVER_DEVICE_CUDA };

typedef struct quaver_device_matrix {
  void* values;
  int64_t rows;
  int64_t cols;
  quaver_format format;
  int32_t device; /* QUAVER_DEVICE_CPU or QUAVER_DEVICE_CUDA */
  int32_t gpu;    /* its number among CUDA's devices */
  void* stream;
} quaver_device_matrix;

/* Memory that a cast needs, and gets from the caller: kept as long as the quaver_matrix is there, scratch until the
 * stream has passed the call's work. quaver_cast_memory sets the bytes. */
typedef struct quaver_device_memory {
  void* kept;
  size_t kept_bytes;
  void* scratch;
  size_t scratch_bytes;
} quaver_device_memory;

quaver_status quaver_cast_memory(const quaver_device_matrix* x, const quaver_cast_settings* settings,
                                 quaver_device_memory* out);
quaver_status quaver_quantize_on_device(const quaver_device_matrix* x, const quaver_cast_settings* settings,
                                        const quaver_device_memory* memory, quaver_matrix** out);
quaver_status quaver_dequantize_on_device(const quaver_matrix* matrix, const quaver_device_matrix* out);
quaver_status quaver_gemm_on_device(const quaver_matrix* a, const quaver_matrix* b, const quaver_device_matrix* out);

/* --- Recipes and linear layers ----------------------------------------------------------------------------------- */

size_t quaver_recipe_count(void);
/* The text is static. */
quaver_status quaver_recipe_at(size_t index, const char** name, const char** summary);

enum { QUAVER_ROLE_X, QUAVER_ROLE_W, QUAVER_ROLE_DY };
quaver_status quaver_recipe_spec(const char* recipe, int32_t role, int32_t side, quaver_spec* out);

typedef struct quaver_linear quaver_linear;
enum { QUAVER_TRAIN, QUAVER_EVALUATE };

typedef struct quaver_linear_settings {
  int64_t in;
  int64_t out;
  int32_t bias;
  int32_t device;
  int32_t threads; /* 0: all cores */
  int32_t gpu;     /* its number among CUDA's devices */
  const char* recipe;
  const char* const* settings; /* "precision.history=32" */
  size_t setting_count;
  uint64_t seed;
} quaver_linear_settings;

/* y = x * transpose(w) + b with the recipe's casts and GEMMs. A step: forward, backward (any number of times), read the
 * gradients, end_step. */
quaver_status quaver_linear_new(const quaver_linear_settings* settings, quaver_linear** out);
void quaver_linear_free(quaver_linear* layer);
quaver_status quaver_linear_set_weight(quaver_linear* layer, const float* weight, size_t count);
quaver_status quaver_linear_set_bias(quaver_linear* layer, const float* bias, size_t count);
quaver_status quaver_linear_forward(quaver_linear* layer, const float* x, int64_t tokens, int32_t pass, float* y);
quaver_status quaver_linear_backward(quaver_linear* layer, const float* dy, int64_t tokens, float* dx);
quaver_status quaver_linear_weight_gradient(const quaver_linear* layer, float* out, size_t count);
quaver_status quaver_linear_bias_gradient(const quaver_linear* layer, float* out, size_t count);
quaver_status quaver_linear_clear_gradients(quaver_linear* layer);
quaver_status quaver_linear_collect(quaver_linear* layer, int32_t detail);
quaver_status quaver_linear_end_step(quaver_linear* layer);
/* The same for many layers, with one wait per GPU. */
quaver_status quaver_linear_end_steps(quaver_linear* const* layers, size_t count);
/* Of the step that end_step ended last. */
quaver_status quaver_linear_statistics(const quaver_linear* layer, int32_t role, quaver_statistics* out);
quaver_status quaver_linear_scale(const quaver_linear* layer, int32_t role, float* out);
/* All that the layer is beside its weight and bias, after a step has ended; the text lives until it is asked for again.
 * A layer of the same recipe that loads it goes on bit for bit. */
quaver_status quaver_linear_state(quaver_linear* layer, const char** out);
quaver_status quaver_linear_load_state(quaver_linear* layer, const char* text);

/* Passes over arrays in the memory of the layer's device, without copies: contiguous, of QUAVER_F32, or QUAVER_BF16 on
 * a GPU, where they begin at multiples of 16 bytes. A GPU's work goes onto the stream, a cudaStream_t (NULL: CUDA's
 * default stream), and the calls return before it has run. Any number of passes may be between forward and backward. */

/* Bytes that a pass needs beside its arrays. kept: from forward until its backward has run; 0 where backward reads x
 * itself. The others: until the stream has passed the call's work. */
typedef struct quaver_linear_memory {
  size_t kept;
  size_t forward_scratch;
  size_t backward_scratch;
} quaver_linear_memory;

typedef struct quaver_linear_forward_pass {
  int64_t tokens;
  quaver_format format; /* of x and y */
  int32_t pass;
  const void* x;     /* [tokens x in] */
  const float* bias; /* [out]; NULL: none */
  void* y;           /* [tokens x out] */
  void* kept;
  size_t kept_bytes;
  void* scratch;
  size_t scratch_bytes;
  void* stream;
} quaver_linear_forward_pass;

typedef struct quaver_linear_backward_pass {
  int64_t tokens;
  quaver_format format; /* of dy and dx */
  quaver_format weight_format;
  int32_t add;           /* to the weight gradient, which is replaced otherwise */
  const void* x;         /* of forward, where nothing else was kept */
  const void* dy;        /* [tokens x out] */
  void* dx;              /* [tokens x in]; NULL: not wanted */
  void* weight_gradient; /* [out x in]; NULL: not wanted */
  float* bias_gradient;  /* [out], added to; NULL: not wanted */
  void* kept;
  size_t kept_bytes;
  void* scratch;
  size_t scratch_bytes;
  void* stream;
} quaver_linear_backward_pass;

quaver_status quaver_linear_pass_memory(const quaver_linear* layer, int64_t tokens, quaver_format format,
                                        quaver_linear_memory* out);
/* Casts [out x in] values, or refers to them where the recipe casts nothing; passes use those of the latest call. */
quaver_status quaver_linear_set_device_weight(quaver_linear* layer, const void* weight, quaver_format format,
                                              void* stream);
quaver_status quaver_linear_run_forward(quaver_linear* layer, const quaver_linear_forward_pass* pass);
quaver_status quaver_linear_run_backward(quaver_linear* layer, const quaver_linear_backward_pass* pass);

/* --- Training ----------------------------------------------------------------------------------------------------- */

typedef struct quaver_step_metrics {
  int64_t step;
  int64_t steps;
  int64_t tokens;
  double loss;
  double learning_rate;
  double gradient_norm;
  double loss_scale;
  double seconds;
  double validation_loss;     /* NaN: not validated after this step */
  double validation_accuracy; /* NaN: not validated, or no classifier */
  uint64_t saturated;
  uint64_t underflowed;
  uint64_t overflows;
  int32_t skipped;
} quaver_step_metrics;

/* Other than 0: write a checkpoint and end. */
typedef int (*quaver_step_callback)(const quaver_step_metrics* metrics, void* user);
typedef void (*quaver_message_callback)(const char* text, void* user);

/* Where resume is set, the run in that folder goes on, and files and toml are not read. */
typedef struct quaver_training {
  const char* const* files; /* paths of TOML files */
  size_t file_count;
  const char* toml;            /* text; may be NULL */
  const char* const* settings; /* "train.steps=100" */
  size_t setting_count;
  const char* resume;
  quaver_step_callback on_step;       /* may be NULL */
  quaver_message_callback on_message; /* messages and warnings; may be NULL */
  void* user;
} quaver_training;

#define QUAVER_PATH_BYTES 4096
typedef struct quaver_training_result {
  char directory[QUAVER_PATH_BYTES];
  int32_t stopped; /* by the callback */
  int64_t steps;
  double train_loss; /* these may be NaN: not known */
  double validation_loss;
  double seconds_per_step;
  double tokens_per_second;
} quaver_training_result;

quaver_status quaver_train(const quaver_training* training, quaver_training_result* out);

typedef struct quaver_evaluation {
  int64_t step;
  int64_t rows;
  double loss;
  double accuracy; /* NaN: no classifier */
} quaver_evaluation;

/* The validation loss of the run's newest checkpoint; batches = 0: as many as the run validates with. */
quaver_status quaver_evaluate(const char* run, int64_t batches, quaver_evaluation* out);

/* The newest checkpoint as a Hugging Face model folder. */
quaver_status quaver_export_model(const char* run, const char* folder);

/* --- Tables of runs ------------------------------------------------------------------------------------------------
 */

typedef struct quaver_store quaver_store;
typedef struct quaver_run_info { /* text is valid as long as the store */
  const char* id;
  const char* name;
  const char* model;
  const char* recipe;
  const char* status;
  const char* directory;
  uint64_t seed;
  uint64_t step;
  uint64_t steps;
  double loss; /* these may be NaN: not known */
  double validation_loss;
  double tokens_per_second;
} quaver_run_info;

/* path: a folder of runs, or its quaver.db. The runs are those at the time of the call, newest first. */
quaver_status quaver_store_open(const char* path, quaver_store** out);
void quaver_store_free(quaver_store* store);
size_t quaver_store_runs(const quaver_store* store);
quaver_status quaver_store_run(const quaver_store* store, size_t index, quaver_run_info* out);

typedef struct quaver_table quaver_table;
typedef struct quaver_column { /* valid as long as the table */
  const char* name;
  const uint64_t* steps;
  const double* values;
  size_t count;
} quaver_column;

/* Every metric of a run, by name. */
quaver_status quaver_store_metrics(const quaver_store* store, const char* run_id, quaver_table** out);
void quaver_table_free(quaver_table* table);
size_t quaver_table_columns(const quaver_table* table);
quaver_status quaver_table_column(const quaver_table* table, size_t index, quaver_column* out);

#ifdef __cplusplus
}
#endif

#endif
