// SPDX-License-Identifier: Apache-2.0
// One pass over a payload (proto/block.h has its layout); numbers that are not finite are counted
// and left out of the rest.

#include "kvstored/value_stats.h"

#include <math.h>
#include <string.h>

struct sums {
    double minimum, maximum, sum, square_sum;
    uint64_t count, not_finite_count;
};

// IEEE 754 binary16.
static double f16_value(uint16_t bits)
{
    int exponent = bits >> 10 & 0x1f;
    double fraction = bits & 0x3ff;
    double magnitude;
    if (exponent == 0x1f) {
        magnitude = fraction == 0 ? INFINITY : NAN;
    } else if (exponent == 0) {
        magnitude = ldexp(fraction, -24);
    } else {
        magnitude = ldexp(fraction + 1024, exponent - 25);
    }
    return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

static void add(struct sums *sums, const uint8_t *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += sizeof(uint16_t)) {
        uint16_t bits;
        memcpy(&bits, data + i, sizeof(bits));
        double value = f16_value(bits);
        if (!isfinite(value)) {
            sums->not_finite_count++;
            continue;
        }
        sums->minimum = sums->count == 0 || value < sums->minimum ? value : sums->minimum;
        sums->maximum = sums->count == 0 || value > sums->maximum ? value : sums->maximum;
        sums->sum += value;
        sums->square_sum += value * value;
        sums->count++;
    }
}

static void finish(const struct sums *sums, struct kv_value_stats *out)
{
    double count = sums->count > 0 ? (double)sums->count : 1;
    *out = (struct kv_value_stats){
        .minimum = sums->minimum,
        .maximum = sums->maximum,
        .mean = sums->sum / count,
        .rms = sqrt(sums->square_sum / count),
        .not_finite_count = sums->not_finite_count,
    };
}

void value_stats_of(const struct kv_group *group, uint32_t block_tokens, const void *payload,
                    struct kv_value_stats *out_keys, struct kv_value_stats *out_values)
{
    struct sums keys = {0}, values = {0};
    size_t head_bytes = block_head_bytes(group, block_tokens);
    size_t head_count =
        group->format == KV_FORMAT_F16 ? (size_t)group->layer_count * group->kv_heads : 0;
    const uint8_t *at = payload;
    for (size_t i = 0; i < head_count; i++) {
        add(&keys, at, head_bytes);
        add(&values, at + head_bytes, head_bytes);
        at += 2 * head_bytes;
    }
    finish(&keys, out_keys);
    finish(&values, out_values);
}
