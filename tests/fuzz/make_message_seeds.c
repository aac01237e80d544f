// SPDX-License-Identifier: Apache-2.0
// Writes the seeds of codec_fuzz, kv_message_fuzz and gpu_message_fuzz: one message of every kind,
// made by the encoders themselves. make_message_seeds CORPUS_FOLDER.
#include "proto/codec.h"
#include "proto/gpu_message.h"
#include "proto/kv_message.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void write_file(const char *folder, const char *name, int first_byte, const void *data,
                       size_t bytes)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    int failed = file == NULL;
    if (!failed) {
        failed = first_byte >= 0 && fputc(first_byte, file) == EOF;
        failed |= fwrite(data, 1, bytes, file) != bytes;
        failed |= fclose(file) != 0;
    }
    if (failed) {
        fprintf(stderr, "make_message_seeds: %s: cannot be written\n", path);
        exit(1);
    }
}

static void write_codec_seed(const char *corpus)
{
    char folder[4096];
    snprintf(folder, sizeof(folder), "%s/codec", corpus);
    struct codec_writer writer;
    const uint8_t *data;
    size_t bytes;
    const uint32_t words[] = {1, 2, 3};
    codec_writer_init(&writer, 4096);
    codec_put_u64(&writer, "op", 300);
    codec_put_i64(&writer, "epoch", -70000);
    codec_put_f64(&writer, "a", 0.5);
    codec_put_bool(&writer, "b", true);
    codec_put_text(&writer, "name", "h\xc3\xa9llo");
    codec_put_u32s(&writer, "tokens", words, 3);
    codec_put_array(&writer, "slots");
    codec_put_map(&writer, NULL);
    codec_put_text(&writer, "a", "");
    codec_put_array(&writer, "b");
    codec_put_u64(&writer, NULL, 5);
    codec_end(&writer);
    codec_end(&writer);
    codec_end(&writer);
    if (codec_writer_finish(&writer, &data, &bytes) == STATUS_OK) {
        write_file(folder, "every_type", -1, data, bytes);
    }
    codec_writer_free(&writer);
    static const char compact[] = "\x86\xa2op\x05\xa1"
                                  "a\xca\x3f\0\0\0\xa1"
                                  "b\x92\x80\xc0\xa4name\xd9\x01x\xa5slots\xde\0\0\xa6tokens\xc4\0";
    write_file(folder, "compact_forms", -1, compact, sizeof(compact) - 1);
}

static struct kv_namespace example_namespace(void)
{
    struct kv_namespace name_space = {
        .block_tokens = 32,
        .group_count = 1,
        .groups = {{.layer_count = 30, .kv_heads = 3, .head_dim = 64}},
        .field_count = 1,
        .fields = {{"model", "0123"}},
    };
    memset(name_space.fingerprint, 7, sizeof(name_space.fingerprint));
    return name_space;
}

static void fill_request(struct kv_request *request)
{
    static const uint32_t tokens[] = {1, 2, 3, 4};
    switch (request->op) {
    case KV_OP_HELLO:
        request->hello = (struct kv_hello_request){.version = KV_PROTOCOL_VERSION,
                                                   .program = "gpud",
                                                   .has_namespace = true,
                                                   .name_space = example_namespace()};
        break;
    case KV_OP_LEASE:
        request->lease = (struct kv_lease_request){
            .tokens = tokens, .token_count = 4, .block_count = 1, .salt = "u", .salt_bytes = 1};
        break;
    case KV_OP_PUBLISH:
        request->publish =
            (struct kv_publish_request){.lease_id = 9, .block_indexes = tokens, .block_count = 3};
        break;
    case KV_OP_CHECKPOINT:
        request->checkpoint = (struct kv_checkpoint){.name = "chat",
                                                     .tokens = tokens,
                                                     .token_count = 4,
                                                     .settings = "s",
                                                     .settings_bytes = 1,
                                                     .keep = true};
        break;
    case KV_OP_SESSION_GET:
    case KV_OP_SESSION_LIST:
    case KV_OP_SESSION_DELETE:
        request->session.name = "chat";
        break;
    default:
        break; // all zero is a message of these
    }
}

static void fill_reply(struct kv_reply *reply)
{
    switch (reply->op) {
    case KV_OP_HELLO:
        reply->hello = (struct kv_hello_reply){
            .version = 1, .epoch = 5, .client_id = 2, .arena_name = "/kvtier-1-2", .slot_count = 3};
        break;
    case KV_OP_LEASE:
        reply->lease.slots = calloc(2, sizeof(struct kv_slot_ref));
        reply->lease.block_count = reply->lease.slots != NULL ? 2 : 0;
        break;
    case KV_OP_SESSION_GET:
        reply->session_get.name = strdup("chat");
        break;
    case KV_OP_SESSION_LIST:
        reply->session_list.rows = calloc(1, sizeof(struct kv_session_info));
        reply->session_list.count = reply->session_list.rows != NULL ? 1 : 0;
        if (reply->session_list.count > 0) {
            strcpy(reply->session_list.rows[0].name, "chat");
        }
        break;
    case KV_OP_STATUS:
        reply->state.has_namespace = true;
        reply->state.name_space = example_namespace();
        break;
    case KV_OP_BLOCKS:
        reply->blocks.rows = calloc(1, sizeof(struct kv_block_info));
        reply->blocks.count = reply->blocks.rows != NULL ? 1 : 0;
        break;
    default:
        break;
    }
}

static void write_kv_seeds(const char *corpus)
{
    char folder[4096];
    char name[64];
    void *data;
    size_t bytes;
    snprintf(folder, sizeof(folder), "%s/kv_message", corpus);
    for (int op = KV_OP_HELLO; op < KV_OP_END; op++) {
        struct kv_request request = {.op = (enum kv_op)op, .epoch = 5};
        fill_request(&request);
        if (kv_request_encode(&request, &data, &bytes) == STATUS_OK) {
            snprintf(name, sizeof(name), "request_%s", kv_op_name(request.op));
            write_file(folder, name, 0, data, bytes);
            free(data);
        }
        struct kv_reply reply = {.op = (enum kv_op)op, .epoch = 5};
        fill_reply(&reply);
        if (kv_reply_encode(&reply, &data, &bytes) == STATUS_OK) {
            snprintf(name, sizeof(name), "reply_%s", kv_op_name(reply.op));
            write_file(folder, name, op, data, bytes);
            free(data);
        }
        kv_reply_finish(&reply);
    }
    struct kv_reply failure = {.op = KV_OP_LEASE, .status = STATUS_BUSY, .reason = {"a: b", "c"}};
    if (kv_reply_encode(&failure, &data, &bytes) == STATUS_OK) {
        write_file(folder, "reply_failed", KV_OP_LEASE, data, bytes);
        free(data);
    }
}

static const struct gpu_text chat = {"chat", 4};

static void write_gpu_requests(const char *folder)
{
    static const uint32_t ids[] = {1, 2, 3};
    struct gpu_turn turns[] = {{{"user", 4}, {"hi", 2}}};
    void *data;
    size_t bytes;
    char name[64];
    for (int op = 0; op < GPU_OP_COUNT; op++) {
        struct gpu_request request;
        gpu_request_init(&request, (enum gpu_op)op);
        request.version = GPU_PROTOCOL_VERSION;
        request.program = (struct gpu_text){"gpuctl", 6};
        request.session = chat;
        request.prompt = (struct gpu_text){"once", 4};
        request.stop[0] = (struct gpu_text){"\n", 1};
        request.stop_count = 1;
        if (op == GPU_OP_DETOKENIZE || op == GPU_OP_SCORE) {
            request.prompt = (struct gpu_text){NULL, 0};
            request.ids = gpu_ids_of(ids, 3);
        }
        if (gpu_request_encode(&request, &data, &bytes) == STATUS_OK) {
            snprintf(name, sizeof(name), "request_%d", op);
            write_file(folder, name, 0, data, bytes);
            free(data);
        }
    }
    struct gpu_request request;
    gpu_request_init(&request, GPU_OP_GENERATE);
    request.turns = turns;
    request.turn_count = 1;
    if (gpu_request_encode(&request, &data, &bytes) == STATUS_OK) {
        write_file(folder, "request_turns", 0, data, bytes);
        free(data);
    }
}

static void write_gpu_seeds(const char *corpus)
{
    static const uint32_t ids[] = {1, 2, 3};
    static struct gpu_status status = {.model_name = "tiny", .has_store = true};
    static struct kv_session_info session = {.name = "chat"};
    char folder[4096];
    char name[64];
    void *data;
    size_t bytes;
    snprintf(folder, sizeof(folder), "%s/gpu_message", corpus);
    write_gpu_requests(folder);
    for (int kind = 0; kind < GPU_EVENT_COUNT; kind++) {
        struct gpu_event event = {
            .kind = (enum gpu_event_kind)kind,
            .hello = {.version = 1, .model_name = {"tiny", 4}},
            .token = {.id = 7, .text = {"a", 1}, .has_logits_hash = true},
            .ids = gpu_ids_of(ids, 3),
            .score = {.top_ids = gpu_ids_of(ids, 3), .top_logits = (const uint8_t *)ids},
            .sessions = {.count = 1, .rows = &session},
            .text = chat,
            .status = &status,
            .done = {.finish_reason = {"stop", 4}},
            .error = STATUS_BUSY,
            .reason = {"a: b", "c"},
        };
        if (gpu_event_encode(&event, &data, &bytes) == STATUS_OK) {
            snprintf(name, sizeof(name), "event_%d", kind);
            write_file(folder, name, 1, data, bytes);
            free(data);
        }
    }
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "Usage: make_message_seeds CORPUS_FOLDER\n");
        return 2;
    }
    write_codec_seed(argv[1]);
    write_kv_seeds(argv[1]);
    write_gpu_seeds(argv[1]);
    return 0;
}
