#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exact key->value recall ("needle") model with analytic weights, `llama` architecture, as a GGUF file.

    make_recall_model.py model  OUT.gguf [--head-dim 64 --heads 2 --kv-heads 1 --layers 2 --embd 128 --type f16]
    make_recall_model.py prompt OUT.json --n 262144 [--needles 20 --value-len 1 --seed 0 --query 3 --at 1,77,9000]   (needles <= 1024)

Behaviour of the model for EVERY position i, at any length up to CTX:
    token[i] occurred before, followed by X  ->  next token is X      (X unique if token[i] occurred once)
    token[i] is the stop word "."            ->  </s>
    token[i] never occurred before           ->  </s>                 (sink on <s>; needs <s> at position 0)
The right token's logit is GAIN (after ".": >= 2 GAIN), every other one is at most GAIN/4 (exact arithmetic).

Residual stream x (E wide): [0]=1, [1]=+1 for <s> else -1, [2]=+1 for "." else -1, then three slots of L dims:
    s1 code of this token | s2 code of the previous token (layer 0) | s3 code of the answer (layers 1..)
Head (hd wide), RoPE over all of it, pairs (2k,2k+1), theta_k = BASE^(-2k/hd):
    pairs 0..P-1 positional | pair P sink | last L dims content; BASE is so large that those hardly turn.
"""
import argparse, json, struct
import numpy as np

CTX = 262144                  # longest context the numbers below are made for
BASE = 1e14                   # rope.freq_base: first content pair turns CTX*BASE**-0.5 = 0.026 rad at distance CTX
S0, S1, SINK = 160., 96., 64.  # attention scores: previous token; right key; <s> for a key that is nowhere (S1/4 + ln CTX < SINK < S1)
QSINK = 10.                   # query side of SINK: small, as the noise of every quantised key passes through it
GAIN, EPS = 32., 1e-5         # logit of the right token; RMSNorm epsilon
BOS, EOS = 1, 2
NKEY, NVAL, NFILL = 1024, 256, 256  # how prompts use the words: w0000.. keys, w1024.. values, w1280.. filler
VOCAB = 2048

# ---------------------------------------------------------------- vocabulary
# SPM. A word is "w" + 4 digits. The only mergeable pieces are the prefixes "_w", "_w0", "_w00", "_w000" and the words
# "_w0000" (_ = U+2581), so each piece has exactly one way to come about: text "w0012 w0700 ." <-> 3 ids, whatever the scores.
def vocab():
    sp = '\u2581'; n = NKEY + NVAL + NFILL
    words = [sp + 'w%04d' % i for i in range(n)]
    pre = sorted({w[:j] for w in words for j in range(2, 6)}, key=lambda p: (len(p), p))
    toks = ['<unk>', '<s>', '</s>'] + ['<0x%02X>' % i for i in range(256)] + list('.w0123456789') + [sp] + pre + [sp + '.'] + words
    typ = [2, 3, 3] + [6] * 256 + [1] * (len(toks) - 259)
    first, stop = len(toks) - n, len(toks) - n - 1
    typ += [5] * (VOCAB - len(toks)); toks += ['<unused%d>' % i for i in range(VOCAB - len(toks))]
    return toks, typ, first, stop                     # id of word i is first + i; id of " ." is stop

# ---------------------------------------------------------------- codes
# code[t][x] = (-1)^(Tr(a x) + Tr(b x^3) + e), x in GF(L), t = a | b<<m | e<<2m: two-error BCH dual (Gold) words;
# L=32 gives 2048 words and L=64 8192, |correlation| <= 1/4 between any two (or exactly -1).
def codes(L, n):
    m = L.bit_length() - 1; tap = {4: 1, 5: 2, 6: 1, 7: 1}[m]; N = L - 1
    s = [1] + [0] * (m - 1)
    while len(s) < N: s.append(s[-m] ^ s[tap - m])     # m-sequence Tr(g^i)
    s = np.array(s); i = np.arange(N)
    A = np.array([0 * i] + [s[(i + j) % N] for j in range(N)]); B = np.array([0 * i] + [s[(3 * i + j) % N] for j in range(N)])
    t = np.arange(n); assert n <= 2 << 2 * m
    bits = np.concatenate([np.zeros((n, 1), int), A[t & N] ^ B[t >> m & N]], 1) ^ (t >> 2 * m)[:, None]
    return (1 - 2 * bits).astype(np.float32)

# ---------------------------------------------------------------- weights
def weights(E=128, H=2, KV=1, hd=64, layers=2, L=None, ff=None):
    L = L or hd // 2; ff = ff or E; P = hd // 2 - L // 2 - 1; R = hd // L; M = layers - 1
    assert E >= 3 + 3 * L and hd % L == 0 and H % KV == 0
    stop = vocab()[3]; C = codes(L, VOCAB); T = {}
    s1, s2, s3 = (slice(3 + j * L, 3 + (j + 1) * L) for j in range(3))
    flip = [np.where((np.arange(L) * (2 * g + 1) * .6180339887) % 1 < .5, 1, -1) for g in range(KV)]  # own signs per KV head
    theta = BASE ** (-np.arange(P) * 2. / hd)
    n = P - 2; w = np.zeros(P); w[1:n] = np.linspace(1, .3, n - 1); w *= .64 / w.sum(); w[0] = .36  # spectrum of the score
    amp = np.sqrt(w * S0 * np.sqrt(hd))                # score at distance d: S0 * sum_k w_k cos((d-1) theta_k)
    a1 = np.sqrt(S1 * np.sqrt(hd) / L)                 # score of equal codes: a1*a1*L/sqrt(hd) = S1
    rms = lambda ss: np.full(E, np.sqrt(ss / E + EPS), np.float32)   # norm weight that makes RMSNorm the identity at |x|^2 = ss
    emb = np.zeros((VOCAB, E), np.float32); emb[:, 0] = 1; emb[:, 1:3] = -1; emb[BOS, 1] = emb[stop, 2] = 1; emb[:, s1] = C
    T['token_embd.weight'] = emb
    for l in range(layers):
        q = np.zeros((H, hd, E)); k = np.zeros((KV, hd, E)); v = np.zeros((KV, hd, E)); o = np.zeros((E, H, hd))
        for g in range(KV):
            F = np.diag(flip[g])
            for r in range(R): v[g, r * L:(r + 1) * L, s1] = F * (1 - 2 * (r & 1))
            if l == 0:
                k[g, 0:2 * P:2, 0] = amp               # key of j: amp*(1,0), turned by j*theta
            else:
                k[g, hd - L:, s2] = a1 * F             # (x0+x1)/2 is 1 for <s>, else 0: the key of <s> is the sink alone
                k[g, 2 * P, 0:2] = SINK * np.sqrt(hd) / QSINK / 2; k[g, hd - L:, 0:2] -= (a1 / 2 * F @ C[BOS])[:, None]
                for r in range(R): v[g, r * L:(r + 1) * L, 0:2] += (F @ (C[EOS] - C[BOS]) * (1 - 2 * (r & 1)) / 2)[:, None]
        for h in range(H):
            F = np.diag(flip[h * KV // H])
            if l == 0:                                 # query of i: amp*(cos -theta, sin -theta), turned by i*theta
                q[h, 0:2 * P:2, 0] = amp * np.cos(theta); q[h, 1:2 * P:2, 0] = -amp * np.sin(theta)
            else:
                q[h, hd - L:, s1] = a1 * F; q[h, 2 * P, 0] = QSINK
            for r in range(R):                         # every head and every repeat carries its share of the answer
                o[s2 if l == 0 else s3, h, r * L:(r + 1) * L] = F * (1 - 2 * (r & 1)) / (H * R * (M if l else 1))
        b = 'blk.%d.' % l
        T[b + 'attn_norm.weight'] = rms(3 + L if l == 0 else 3 + 2 * L + L * ((l - 1) / M) ** 2)
        T[b + 'attn_q.weight'] = q.reshape(H * hd, E); T[b + 'attn_k.weight'] = k.reshape(KV * hd, E)
        T[b + 'attn_v.weight'] = v.reshape(KV * hd, E); T[b + 'attn_output.weight'] = o.reshape(E, H * hd)
        T[b + 'ffn_norm.weight'] = np.ones(E)
        for nm, sh in (('gate', (ff, E)), ('up', (ff, E)), ('down', (E, ff))): T[b + 'ffn_%s.weight' % nm] = np.zeros(sh)
    T['output_norm.weight'] = rms(3 + 3 * L)
    out = np.zeros((VOCAB, E), np.float32); out[:, s3] = C * GAIN / L
    out[EOS, 0] = out[EOS, 2] = 1.5 * GAIN             # "." -> </s>, whatever layer 1 found
    T['output.weight'] = out
    return {k: np.ascontiguousarray(v, np.float32) for k, v in T.items()}, dict(E=E, H=H, KV=KV, hd=hd, layers=layers, L=L, ff=ff, P=P)

# ---------------------------------------------------------------- GGUF v3
def write_gguf(path, T, c, typ='f16'):
    S = lambda s: struct.pack('<Q', len(s.encode())) + s.encode()
    U = lambda k, v: S(k) + struct.pack('<II', 4, v)
    Fl = lambda k, v: S(k) + struct.pack('<If', 6, v)
    St = lambda k, v: S(k) + struct.pack('<I', 8) + S(v)
    Bo = lambda k, v: S(k) + struct.pack('<I?', 7, v)
    Ar = lambda k, t, items, f: S(k) + struct.pack('<IIQ', 9, t, len(items)) + b''.join(map(f, items))
    toks, tt, _, _ = vocab()
    md = [St('general.architecture', 'llama'), St('general.name', 'analytic recall'), U('llama.context_length', CTX),
          U('llama.embedding_length', c['E']), U('llama.block_count', c['layers']), U('llama.feed_forward_length', c['ff']),
          U('llama.attention.head_count', c['H']), U('llama.attention.head_count_kv', c['KV']), U('llama.vocab_size', VOCAB),
          Fl('llama.attention.layer_norm_rms_epsilon', EPS), U('llama.rope.dimension_count', c['hd']), Fl('llama.rope.freq_base', BASE)]
    if c['hd'] * c['H'] != c['E']: md += [U('llama.attention.key_length', c['hd']), U('llama.attention.value_length', c['hd'])]
    md += [St('tokenizer.ggml.model', 'llama'), Ar('tokenizer.ggml.tokens', 8, toks, S),
           Ar('tokenizer.ggml.scores', 6, range(VOCAB), lambda i: struct.pack('<f', 0. if i < 259 else -float(i))),
           Ar('tokenizer.ggml.token_type', 5, tt, lambda x: struct.pack('<i', x)),
           U('tokenizer.ggml.bos_token_id', BOS), U('tokenizer.ggml.eos_token_id', EOS), U('tokenizer.ggml.unknown_token_id', 0),
           Bo('tokenizer.ggml.add_bos_token', True), Bo('tokenizer.ggml.add_eos_token', False), Bo('tokenizer.ggml.add_space_prefix', True)]
    hdr = b'GGUF' + struct.pack('<IQQ', 3, len(T), len(md)) + b''.join(md); data = b''
    for k, v in T.items():
        half = typ == 'f16' and v.ndim == 2
        hdr += S(k) + struct.pack('<I', v.ndim) + struct.pack('<%dQ' % v.ndim, *v.shape[::-1]) + struct.pack('<IQ', int(half), len(data))
        b = v.astype(np.float16 if half else np.float32).tobytes(); data += b + b'\0' * (-len(b) % 32)
    with open(path, 'wb') as f: f.write(hdr + b'\0' * (-len(hdr) % 32) + data)

# ---------------------------------------------------------------- prompts with right answers
# ids = <s> filler.. key value.. "." filler.. | query keys.   depth 0 is right after <s>, depth 1 right before the queries.
def prompt(n, needles=20, value_len=1, seed=0, query=None, at=None):
    """query=None: the tail asks for every needle in turn (teacher-forced: read the logits at each `pos`);
    query=i: the prompt ends with needle i's key only (generate greedily: answer tokens, ".", </s>)."""
    _, _, first, stop = vocab(); rng = np.random.default_rng(seed); nl = value_len + 2
    key = rng.permutation(NKEY)[:needles]    # each key once; value words are all different when value_len > 1,
    val = rng.permutation(NVAL) if value_len > 1 else rng.integers(0, NVAL, needles)        # as each must have one successor
    val = NKEY + val[:needles * value_len].reshape(needles, value_len)
    ids = NKEY + NVAL + rng.integers(0, NFILL, n); order = rng.permutation(needles) if query is None else [query]
    end = n - len(order)                               # first query position
    pos = np.array(at) if at else np.round(1 + np.linspace(0, 1, needles) * (end - nl - 1)).astype(int)
    assert needles == len(pos) and (needles == 1 or np.diff(np.sort(pos)).min() >= nl) and pos.max() + nl <= end
    for j, p in enumerate(pos): ids[p] = key[j]; ids[p + 1:p + 1 + value_len] = val[j]; ids[p + 1 + value_len] = -1
    for j, i in enumerate(order): ids[end + j] = key[i]
    ids = np.where(ids < 0, stop, ids + first); ids[0] = BOS
    qs = [dict(pos=int(end + j), key=int(key[i] + first), answer=[int(t) for t in val[i] + first], needle_pos=int(pos[i]), depth=round(float(pos[i] / end), 4)) for j, i in enumerate(order)]
    return ids.astype(int), qs

def text(ids):                                         # without <s>: the tokeniser adds it
    toks = vocab()[0]; return ''.join(toks[i] for i in ids if i != BOS).replace('\u2581', ' ')[1:]

if __name__ == '__main__':
    p = argparse.ArgumentParser(); sub = p.add_subparsers(dest='cmd', required=True)
    a = sub.add_parser('model'); a.add_argument('out'); a.add_argument('--type', default='f16', choices=['f16', 'f32'])
    for k, d in (('head-dim', 64), ('heads', 2), ('kv-heads', 1), ('layers', 2), ('embd', 128), ('code', 0)): a.add_argument('--' + k, type=int, default=d)
    a = sub.add_parser('prompt'); a.add_argument('out'); a.add_argument('--n', type=int, required=True)
    for k, d in (('needles', 20), ('value-len', 1), ('seed', 0)): a.add_argument('--' + k, type=int, default=d)
    a.add_argument('--query', type=int); a.add_argument('--at', type=lambda s: [int(x) for x in s.split(',')])
    o = p.parse_args()
    if o.cmd == 'model':
        T, c = weights(o.embd, o.heads, o.kv_heads, o.head_dim, o.layers, o.code); write_gguf(o.out, T, c, o.type)
        print(c, 'KV bytes/token at f16:', o.layers * o.kv_heads * o.head_dim * 2 * 2)
    else:
        ids, qs = prompt(o.n, o.needles, o.value_len, o.seed, o.query, o.at)
        json.dump(dict(ids=ids.tolist(), text=text(ids), queries=qs), open(o.out, 'w'))
        open(o.out + '.txt', 'w').write(text(ids))
