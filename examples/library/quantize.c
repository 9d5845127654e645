/* Quantizes a matrix to MXFP8 and multiplies it by itself:
 *   cc quantize.c $(pkg-config --cflags --libs quaver) -o quantize */
#include <quaver/quaver.h>
#include <stdio.h>

enum { rows = 4, cols = 64 };

static int failed(void) {
  fprintf(stderr, "%s\n  -> %s\n", quaver_last_error(), quaver_last_remedy());
  return 1;
}

int main(void) {
  float x[rows * cols];
  float product[rows * rows];
  quaver_cast_settings settings;
  quaver_statistics seen;
  quaver_matrix* matrix = NULL;
  int i;

  if (quaver_abi_version() != QUAVER_ABI_VERSION) return 1;
  for (i = 0; i < rows * cols; ++i) x[i] = (float)(i % 7) - 3.0F;
  quaver_default_cast(&settings);
  if (quaver_recipe_spec("mxfp8", QUAVER_ROLE_X, QUAVER_ROWWISE, &settings.spec) != QUAVER_OK) return failed();
  settings.detail = QUAVER_FULL_STATISTICS;
  if (quaver_quantize(x, rows, cols, &settings, &matrix) != QUAVER_OK) return failed();
  if (quaver_matrix_statistics(matrix, &seen) != QUAVER_OK) return failed();
  if (quaver_gemm(matrix, matrix, product, rows * rows) != QUAVER_OK) return failed();
  printf("quaver %s: amax %g, SQNR %g dB, product[0] %g\n", quaver_version(), (double)seen.amax, seen.sqnr_db,
         (double)product[0]);
  quaver_matrix_free(matrix);
  return quaver_format_by_name("e9m9", &settings.spec.format) == QUAVER_FAILED ? 0 : 1; /* an error, no crash */
}
