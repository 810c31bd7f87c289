#pragma once
/// The functions of one table, as a table.cpp gathers them; kernels.hpp has their contracts.

#include <cstddef>
#include <cstdint>

#include "dstune/kernels/kernels.hpp"

namespace dstune::kernels::DSTUNE_ISA {

void embedding_forward(DType type, void* out, const void* token_table, const void* position_table,
                       const void* type_row, const std::int32_t* tokens, std::int64_t rows,
                       std::int64_t sequence, std::int64_t width);
void embedding_backward(DType type, void* d_token_table, void* d_position_table, const void* d_out,
                        const std::int32_t* tokens, std::int64_t rows, std::int64_t sequence,
                        std::int64_t width, std::int64_t vocabulary, bool accumulate_tokens,
                        bool accumulate_positions);

void layernorm_forward(DType type, void* out, void* residual_out, float* mean, float* rstd,
                       const void* residual, const void* x, const void* weight, const void* bias,
                       std::int64_t rows, std::int64_t width, float epsilon);
void layernorm_backward(DType type, void* d_x, void* d_weight, void* d_bias, const void* d_out,
                        const void* input, const float* mean, const float* rstd, const void* weight,
                        std::int64_t rows, std::int64_t width, bool accumulate_input,
                        bool accumulate_weights, void* workspace);
void rmsnorm_forward(DType type, void* out, void* residual_out, float* rstd, const void* residual,
                     const void* x, const void* weight, std::int64_t rows, std::int64_t width,
                     float epsilon);
void rmsnorm_backward(DType type, void* d_x, void* d_weight, const void* d_out, const void* input,
                      const float* rstd, const void* weight, std::int64_t rows, std::int64_t width,
                      bool accumulate_input, bool accumulate_weights, void* workspace);
std::size_t norm_workspace_bytes(std::int64_t width);
void bias_backward(DType type, void* d_bias, const void* d_out, std::int64_t rows,
                   std::int64_t width, std::int64_t stride, bool accumulate, void* workspace);

void head_norm_forward(const AttentionShape& shape, void* qkv, void* raw, float* rstd,
                       const void* q_weight, const void* k_weight, float epsilon);
void head_norm_backward(const AttentionShape& shape, void* d_qkv, void* d_q_weight,
                        void* d_k_weight, const void* raw, const float* rstd, const void* q_weight,
                        const void* k_weight, bool accumulate_weights, void* workspace);
void rotary(const AttentionShape& shape, std::int64_t rotary_size, void* qkv,
            const double* frequencies, float magnitude, bool inverse);
void attention_forward(const AttentionShape& shape, void* out, float* log_sum_exp, const void* qkv,
                       void* workspace);
void attention_backward(const AttentionShape& shape, void* d_qkv, const void* d_out,
                        const void* qkv, const void* out, const float* log_sum_exp,
                        void* workspace);
std::size_t attention_workspace_bytes(const AttentionShape& shape);

void matmul_activation_forward(const MatmulShape& shape, Activation activation, const void* a,
                               const void* b, const void* bias, void* c, void* activated,
                               void* workspace);
void matmul_activation_backward(const MatmulShape& shape, Activation activation, const void* a,
                                const void* b, const void* x, void* c, void* workspace);
void matmul_bias_backward(const MatmulShape& shape, const void* a, const void* b, void* c,
                          void* d_bias, void* workspace);

void activation_forward(DType type, Activation activation, void* out, const void* x,
                        std::int64_t count);
void activation_backward(DType type, Activation activation, void* d_x, const void* d_out,
                         const void* x, std::int64_t count);
void swiglu_forward(DType type, void* out, const void* gate_up, std::int64_t rows,
                    std::int64_t width);
void swiglu_backward(DType type, void* d_gate_up, const void* d_out, const void* gate_up,
                     std::int64_t rows, std::int64_t width);

void cross_entropy(DType type, float* losses, void* logits, const std::int32_t* targets,
                   std::int64_t rows, std::int64_t vocabulary, std::int64_t stride, float scale);

void add(DType to, void* y, DType from, const void* x, std::int64_t count);
void convert(DType to, void* y, DType from, const void* x, std::int64_t count);
void quantize(DType from, int bits, void* codes, float* scales, const void* x, std::int64_t count,
              std::int64_t group_elements);
void dequantize(DType to, int bits, void* y, const void* codes, const float* scales,
                std::int64_t count, std::int64_t group_elements, int parts, int divisor);
void scale(DType type, void* y, float factor, std::int64_t count);
void zero(void* y, std::size_t bytes);
void fill(DType type, void* y, float value, std::int64_t count);
void fill_normal(DType type, void* y, std::uint64_t seed, std::uint64_t tensor,
                 std::int64_t first_index, std::int64_t count, double standard_deviation);
void sum_of_squares(DType type, const void* x, std::int64_t count, double* sum);
void sum_f32(const float* x, std::int64_t count, double* sum);
void clip_factor(const double* squares, std::int64_t count, double clip, double loss_scale,
                 double* norm, float* factor);

void adam(const AdamStep& step, const UpdateTensors& tensors, std::int64_t count);
void lion(const LionStep& step, const UpdateTensors& tensors, std::int64_t count);
void sgd(const SgdStep& step, const UpdateTensors& tensors, std::int64_t count);
void adagrad(const AdagradStep& step, const UpdateTensors& tensors, std::int64_t count);

}  // namespace dstune::kernels::DSTUNE_ISA
