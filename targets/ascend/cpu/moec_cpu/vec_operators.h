// Whole tensors by operators: `dst = a + b` computes dst.GetSize() elements, `bits = a < b` compares a.GetSize() ones.
#pragma once
#include "moec_cpu/vec_compare.h"
#include "moec_cpu/vec_scalar.h"

namespace AscendC {

template <typename T>
template <typename U, char op>
void LocalTensor<T>::operator=(const moec_cpu::Infix<U, op>& e)
{
    const int32_t all = static_cast<int32_t>(size_);
    if constexpr (op == '+') Add(*this, e.a, e.b, all, e.site);
    else if constexpr (op == '-') Sub(*this, e.a, e.b, all, e.site);
    else if constexpr (op == '*') Mul(*this, e.a, e.b, all, e.site);
    else if constexpr (op == '/') Div(*this, e.a, e.b, all, e.site);
    else if constexpr (op == '&') And(*this, e.a, e.b, all, e.site);
    else if constexpr (op == '|') Or(*this, e.a, e.b, all, e.site);
    else {
        constexpr CMPMODE mode = op == 'L' ? CMPMODE::LT : op == 'G' ? CMPMODE::GT : op == 'l' ? CMPMODE::LE : op == 'g' ? CMPMODE::GE
                                                                                : op == 'E'   ? CMPMODE::EQ
                                                                                              : CMPMODE::NE;
        Compare(*this, e.a, e.b, mode, e.a.GetSize(), e.site);
    }
}

}  // namespace AscendC
