/* The zoo: structure of each model, the samples and options it takes, errors for others.
 */
#include "graph/graph.h"
#include "kernel/select/families.h"
#include "kolo/models.h"
#include "plan/internal.h"
#include "support/support.h"

#include <math.h>
#include <string.h>

static kolo_status build(const char *name, const kolo_model_opts *opts, kolo_graph **graph) {
    const kolo_model *model;
    KOLO_TRY(kolo_model_find(name, &model));
    KOLO_TRY(kolo_graph_create(NULL, graph));
    kolo_status status = model->build(*graph, opts);
    if (status == KOLO_OK) status = kolo_graph_check(*graph);
    if (status == KOLO_OK) return KOLO_OK;
    kolo_graph_destroy(*graph);
    return status;
}

typedef struct size_case {
    const char *model, *options;
    kolo_shape sample;
    int64_t classes, parameters;
} size_case;

static const size_case sizes[] = {
    {"lenet", NULL, {3, {1, 28, 28}}, 10, 61706},
    {"lenet", "", {3, {3, 32, 32}}, 10, 83126},
    {"lenet", NULL, {3, {1, 12, 13}}, 2, 156 + 2416 + (16 * 120 + 120) + 10164 + 170},
    {"mlp", NULL, {3, {1, 28, 28}}, 10, 100480 + 16512 + 1290},
    {"mlp", "hidden=32", {3, {1, 28, 28}}, 10, 25120 + 1056 + 330},
    {"mlp", "layers=1,hidden=8", {1, {5}}, 3, 48 + 27},
    {"mlp", "layers=0", {1, {5}}, 3, 18},
    /* torchvision's counts */
    {"resnet18", NULL, {3, {3, 224, 224}}, 1000, 11689512},
    {"resnet34", NULL, {3, {3, 224, 224}}, 1000, 21797672},
    {"resnet50", NULL, {3, {3, 224, 224}}, 1000, 25557032},
    {"resnet101", NULL, {3, {3, 224, 224}}, 1000, 44549160},
    {"alexnet", NULL, {3, {3, 224, 224}}, 1000, 61100840},
    {"vgg16", NULL, {3, {3, 224, 224}}, 1000, 138357544},
    {"googlenet", NULL, {3, {3, 224, 224}}, 1000, 13004888},
    {"googlenet", "aux=0", {3, {3, 64, 64}}, 1000, 6624904},
    {"deeplabv3_resnet101", NULL, {3, {3, 128, 96}}, 21, 58630997},
    {"deeplabv3_resnet101", "aux=1", {3, {3, 65, 65}}, 21, 60996202},
    {"resnet18", "classes=1000", {3, {3, 64, 64}}, 10, 11689512},
    {"resnet20", NULL, {3, {3, 32, 32}}, 10, 269722},
    {"mobilenet_v2", "width=1.4", {3, {3, 64, 64}}, 1000, 6108776},
    {"vit_b_16", NULL, {3, {3, 384, 384}}, 1000, 86567656 + 380 * 768},
    {"llama", "layers=1,tied=1", {1, {16}}, 32000, 32000 * 2048 + 44044288 + 2048},
    /* the published checkpoints' */
    {"gpt2", NULL, {1, {1024}}, 50257, 124439808},
    {"gpt2", "tied=0", {1, {16}}, 50257, 124439808 + 50257 * 768},
    {"gpt2_medium", NULL, {1, {16}}, 50257, 354823168},
    {"gpt2_large", NULL, {1, {16}}, 50257, 774030080},
    {"gpt2_xl", NULL, {1, {16}}, 50257, 1557611200},
    {"gpt2_moe", NULL, {1, {16}}, 256, 842496 + 4 * (8 * 128 + 8 * 2 * 65536 - 131712)},
    {"gpt2",
     "layers=2,width=8,heads=2,context=6,vocab=10",
     {1, {6}},
     10,
     80 + 48 + 2 * (16 + 8 * 24 + 24 + 64 + 8 + 16 + 256 + 32 + 256 + 8) + 16},
    /* Hugging Face's BertForMaskedLM */
    {"bert_tiny", NULL, {1, {512}}, 30522, 4416698},
    {"bert_base", NULL, {1, {16}}, 30522, 109514298},
    {"bert_large", NULL, {1, {16}}, 30522, 335174458},
    /* and BertForPreTraining */
    {"bert_tiny", "nsp=1", {1, {512}}, 30522, 4433468},
    {"bert_base", "nsp=1", {1, {16}}, 30522, 110106428},
    {"bert_large", "nsp=1", {1, {16}}, 30522, 336226108},
    /* as PyTorch's nn.Embedding, nn.LSTM and nn.Linear count */
    {"lstm_lm", NULL, {1, {64}}, 10000, 5120000 + 2 * 2 * (2048 * 512 + 2048) + 5120000 + 10000},
    {"lstm_lm", "tied=1,hidden=4", {1, {8}}, 5, 20 + 2 * 2 * (16 * 4 + 16) + 5},
    {"resnet20", "width=4", {3, {1, 28, 28}}, 10, 17254},
    /* the layers of the paper's code for Criteo's logs; and without hidden layers */
    {"dlrm",
     "rows=1000",
     {1, {13}},
     1,
     26000 * 16 + (13 * 512 + 512) + (512 * 256 + 256) + (256 * 64 + 64) + (64 * 16 + 16) +
         (367 * 512 + 512) + (512 * 256 + 256) + 257},
    {"dlrm",
     "tables=2,rows=7,dim=3,dense=5,bottom1=0,bottom2=0,bottom3=0,top1=0,top2=0",
     {1, {5}},
     1,
     14 * 3 + (5 * 3 + 3) + 7},
    {"fasttext", "rows=50,width=3", {1, {1}}, 4, 50 * 3 + 4 * 3},
};

/* A program's own model by name, and what cannot be registered. */
static void models_can_be_registered(void **state) {
    const kolo_model *lenet, *found;
    ASSERT_OK(kolo_model_find("lenet", &lenet));
    static kolo_model own, other;
    own = other = *lenet;
    own.name = "lenet_of_mine";
    ASSERT_OK(kolo_model_register(&own));
    ASSERT_OK(kolo_model_find("lenet_of_mine", &found));
    assert_ptr_equal(found, &own);
    const struct {
        const char *name, *text;
    } refused[] = {{"lenet_of_mine", "there is a model"},
                   {"lenet", "there is a model"},
                   {"a:b", "omit colons"},
                   {"a.so", "omit colons"},
                   {"", "lacks a name"},
                   {NULL, "lacks a name"}};
    for (size_t i = 0; i < KOLO_COUNT(refused); i++) {
        other.name = refused[i].name;
        assert_int_equal(kolo_model_register(&other), KOLO_ERR_ARG);
        assert_non_null(strstr(kolo_last_error(), refused[i].text));
    }
    assert_int_equal(kolo_model_register(NULL), KOLO_ERR_ARG);
    assert_int_equal(kolo_model_find("lenet_of_min", &found), KOLO_ERR_ARG);
    assert_non_null(strstr(kolo_last_error(), "did you mean \"lenet_of_mine\"?"));
}

static void models_have_their_sizes(void **state) {
    for (size_t i = 0; i < KOLO_COUNT(sizes); i++) {
        const size_case *c = &sizes[i];
        kolo_model_opts opts = {4, c->sample, c->classes, c->options};
        kolo_graph *g;
        ASSERT_OK(build(c->model, &opts, &g));
        ASSERT_OK(kolo_graph_verify(g));
        if (kolo_graph_parameters(g) != c->parameters) {
            fail_msg("%s %s: %ld parameters, not %ld", c->model, c->options ? c->options : "",
                     (long)kolo_graph_parameters(g), (long)c->parameters);
        }
        kolo_value logits = kolo_graph_output(g, "logits");
        const kolo_model *model;
        ASSERT_OK(kolo_model_find(c->model, &model));
        int64_t classes = kolo_info(g, logits)->tensor.shape.dim[1];
        kolo_shape expected = kolo_shape_2(4, classes);
        if (model->label_maps) {
            expected = kolo_shape_4(4, classes, c->sample.dim[1], c->sample.dim[2]);
        }
        kolo_dataset_opts windows;
        ASSERT_OK(kolo_model_window(model, c->options, &windows));
        if (windows.context > 0) expected = kolo_shape_2(4 * c->sample.dim[0], classes);
        assert_true(classes >= c->classes);
        assert_true(kolo_shape_equal(&kolo_info(g, logits)->tensor.shape, &expected));
        assert_int_equal(kolo_info(g, kolo_graph_output(g, "loss"))->tensor.shape.rank, 0);
        assert_int_equal(kolo_info(g, kolo_graph_output(g, "correct"))->tensor.shape.rank, 0);
        assert_int_equal(kolo_info(g, kolo_graph_find(g, "y"))->tensor.dtype,
                         windows.categories > 0 ? KOLO_DTYPE_F32 : KOLO_DTYPE_I32);
        kolo_graph_destroy(g);
    }
}

static void lenet_is_named_and_drawn_as_in_pytorch(void **state) {
    static const struct {
        const char *name;
        kolo_shape shape;
        int64_t fan_in;
    } expected[] = {
        {"conv1.weight", {4, {6, 1, 5, 5}}, 25},   {"conv1.bias", {1, {6}}, 25},
        {"conv2.weight", {4, {16, 6, 5, 5}}, 150}, {"conv2.bias", {1, {16}}, 150},
        {"fc1.weight", {2, {120, 400}}, 400},      {"fc1.bias", {1, {120}}, 400},
        {"fc2.weight", {2, {84, 120}}, 120},       {"fc2.bias", {1, {84}}, 120},
        {"fc3.weight", {2, {10, 84}}, 84},         {"fc3.bias", {1, {10}}, 84},
    };
    kolo_model_opts opts = {8, {3, {1, 28, 28}}, 10, NULL};
    kolo_graph *g;
    ASSERT_OK(build("lenet", &opts, &g));
    for (size_t i = 0; i < KOLO_COUNT(expected); i++) {
        kolo_value v = kolo_graph_find(g, expected[i].name);
        assert_true(kolo_value_ok(v));
        const kolo_value_info *info = kolo_info(g, v);
        kolo_init init = kolo_init_fan_in(expected[i].fan_in);
        assert_int_equal(info->kind, KOLO_VALUE_PARAM);
        assert_true(kolo_shape_equal(&info->canon, &expected[i].shape));
        assert_int_equal(info->init.kind, init.kind);
        assert_true(info->init.scale == init.scale);
    }
    kolo_graph_destroy(g);
}

typedef struct refusal {
    const char *model, *options;
    kolo_shape sample;
    const char *text;
} refusal;

#define IMAGE            \
    {                    \
        3, { 1, 28, 28 } \
    }

static const refusal refusals[] = {
    {"lenett", NULL, IMAGE, "unknown model \"lenett\": did you mean \"lenet\"?"},
    {"transformer", NULL, IMAGE,
     "unknown model \"transformer\": choose one of lenet, mlp, resnet20, resnet18, resnet34, "
     "resnet50, "
     "resnet101"},
    {"", NULL, IMAGE,
     "unknown model \"\": choose one of lenet, mlp, resnet20, resnet18, resnet34, resnet50, "
     "resnet101, "
     "alexnet, vgg16, googlenet, mobilenet_v2, densenet121, vit_b_16, vit_tiny, "
     "deeplabv3_resnet101, unet, lstm_lm, gpt2, gpt2_tiny, gpt2_medium, gpt2_large, gpt2_xl, "
     "gpt2_moe, llama, "
     "llama_tiny, bert_tiny, bert_mini, bert_small, bert_medium, bert_base, bert_large, dlrm, "
     "fasttext"},
    {"/etc/passwd", NULL, IMAGE, "; or a file that ends in .onnx or .so"},
    {"gpt2_moe", "experts=4,top=5", {1, {8}}, "top=5 of 4 experts: choose 1 to 4"},
    {"vit_tiny", "patch=5", {3, {3, 8, 8}}, "images of 8x8 are not whole patches of 5"},
    {"vit_tiny", "heads=5,patch=4", {3, {3, 8, 8}}, "width 192 is not a multiple of 5 heads"},
    {"unet", NULL, {3, {3, 24, 32}}, "24x32 are no multiples of 16"},
    {"llama", "kv_heads=3", {1, {8}}, "32 heads are not 1 to 64 times 3 kv_heads"},
    {"llama", "heads=3", {1, {8}}, "width 2048 is not a multiple of twice 3 heads"},
    {"lenet", "hidden=3", IMAGE, "model lenet has no options: drop \"hidden\""},
    {"lenet", NULL, {1, {784}}, "at least 12x12, not samples of shape [784]"},
    {"lenet", NULL, {3, {1, 28, 11}}, "at least 12x12, not samples of shape [1,28,11]"},
    {"mlp", "hiden=3", IMAGE, "model mlp has no option \"hiden\": did you mean \"hidden\"?"},
    {"mlp", "hidden", IMAGE, "\"hidden\": give hidden a whole number from 1 to 1048576"},
    {"mlp", "hidden=", IMAGE, "\"hidden=\": give hidden a whole number"},
    {"mlp", "hidden=0", IMAGE, "\"hidden=0\": give hidden a whole number"},
    {"mlp", "hidden=1e3", IMAGE, "\"hidden=1e3\": give hidden a whole number"},
    {"mlp", "hidden=99999999999999999999", IMAGE, "give hidden a whole number"},
    {"mlp", "layers=65", IMAGE, "give layers a whole number from 0 to 64, as in layers=2"},
    {"mlp", "hidden=3,hidden=4", IMAGE, "option hidden is given twice"},
    {"mlp", ",", IMAGE, "has no option \"\": it has hidden, layers"},
    {"lstm_lm",
     "foo=1",
     {1, {64}},
     "model lstm_lm has no option \"foo\": it has layers, hidden, width, context, vocab, tied, "
     "dropout"},
    {"mlp", "a-name-that-is-much-longer-than-any-option=1", IMAGE, "has no option \"a-name-that"},
    {"mlp", "hidden=0.5", IMAGE, "\"hidden=0.5\": give hidden a whole number from 1 to 1048576"},
    {"resnet18",
     "width=0.01",
     {3, {3, 64, 64}},
     "give width a whole number, or a share of 64 as 0.5, from 2 to 4096, as in width=64"},
    {"vgg16",
     "width=0.5x",
     {3, {3, 64, 64}},
     "give width a whole number of percent, or a share as 0.5, from 1 to 400, as in width=100"},
    {"vgg16", "width=1e300.", {3, {3, 64, 64}}, "give width a whole number of percent"},
    {"vgg16", "width=nan.", {3, {3, 64, 64}}, "give width a whole number of percent"},
    {"vgg16", "width=-.5", {3, {3, 64, 64}}, "give width a whole number of percent"},
    {"vgg16", "width=.", {3, {3, 64, 64}}, "give width a whole number of percent"},
    {"googlenet", "classes=9", {3, {3, 64, 64}}, "classes=9, but the data has 10: give at least"},
    {"googlenet", "aux=2", {3, {3, 64, 64}}, "give aux a whole number from 0 to 1"},
    {"deeplabv3_resnet101", NULL, {1, {784}}, "takes images [C,H,W], not samples of shape [784]"},
    {"gpt2", NULL, IMAGE, "takes windows of tokens, not samples of shape [1,28,28]"},
    {"gpt2", "width=10,heads=3", {1, {4}}, "width 10 is not a multiple of 3 heads"},
    {"gpt2", "context=3", {1, {4}}, "[P,768] with P 4 or more"},
    {"lstm_lm", "tied=1,width=7", {1, {4}}, "tied=1 needs a width of 512"},
    {"mlp", NULL, {6, {1, 1, 1, 1, 1, 1}}, "samples have 6 dimensions: at most 5 fit"},
    {"dlrm", "dense=3", {1, {4}}, "takes samples of 3 numbers and 26 ids, not [4]"},
    {"dlrm", "tables=100,rows=21474837", {1, {13}}, "give rows=21474836"},
    {"fasttext", NULL, {1, {2}}, "takes labelled texts, not samples [2]"},
};

static void what_does_not_suit_is_refused_in_words(void **state) {
    for (size_t i = 0; i < KOLO_COUNT(refusals); i++) {
        const refusal *r = &refusals[i];
        kolo_model_opts opts = {2, r->sample, 10, r->options};
        kolo_graph *g;
        assert_int_equal(build(r->model, &opts, &g), KOLO_ERR_ARG);
        if (!strstr(kolo_last_error(), r->text)) {
            fail_msg("\"%s\" lacks \"%s\"", kolo_last_error(), r->text);
        }
    }
}

/* torchvision's names and initial values, in every kind of layer. */
static void resnets_are_named_and_drawn_as_in_torchvision(void **state) {
    static const struct {
        const char *model, *name;
        kolo_shape shape;
        kolo_init init;
    } expected[] = {
        {"resnet18", "conv1.weight", {4, {64, 3, 7, 7}}, {KOLO_INIT_NORMAL, 2.0 / (64 * 49)}},
        {"resnet18", "bn1.weight", {1, {64}}, {KOLO_INIT_ONE, 0}},
        {"resnet18", "bn1.running_mean", {1, {64}}, {KOLO_INIT_ZERO, 0}},
        {"resnet18", "bn1.running_var", {1, {64}}, {KOLO_INIT_ONE, 0}},
        {"resnet18",
         "layer1.1.conv2.weight",
         {4, {64, 64, 3, 3}},
         {KOLO_INIT_NORMAL, 2.0 / (64 * 9)}},
        {"resnet18",
         "layer2.0.downsample.0.weight",
         {4, {128, 64, 1, 1}},
         {KOLO_INIT_NORMAL, 2.0 / 128}},
        {"resnet18", "layer2.0.downsample.1.bias", {1, {128}}, {KOLO_INIT_ZERO, 0}},
        {"resnet50",
         "layer1.0.downsample.0.weight",
         {4, {256, 64, 1, 1}},
         {KOLO_INIT_NORMAL, 2.0 / 256}},
        {"resnet50",
         "layer4.2.conv3.weight",
         {4, {2048, 512, 1, 1}},
         {KOLO_INIT_NORMAL, 2.0 / 2048}},
        {"resnet50", "layer4.2.bn3.running_var", {1, {2048}}, {KOLO_INIT_ONE, 0}},
        {"resnet50", "fc.weight", {2, {1000, 2048}}, {KOLO_INIT_UNIFORM, 1.0 / 2048}},
        {"resnet101",
         "layer3.22.conv1.weight",
         {4, {256, 1024, 1, 1}},
         {KOLO_INIT_NORMAL, 2.0 / 256}},
        {"resnet20",
         "layer3.0.conv1.weight",
         {4, {64, 32, 3, 3}},
         {KOLO_INIT_NORMAL, 2.0 / (64 * 9)}},
    };
    for (size_t i = 0; i < KOLO_COUNT(expected); i++) {
        kolo_model_opts opts = {2, {3, {3, 64, 64}}, 1000, NULL};
        kolo_graph *g;
        ASSERT_OK(build(expected[i].model, &opts, &g));
        kolo_value v = kolo_graph_find(g, expected[i].name);
        if (!kolo_value_ok(v)) fail_msg("no %s", expected[i].name);
        const kolo_value_info *info = kolo_info(g, v);
        double scale = info->init.scale * info->init.scale;
        assert_true(kolo_shape_equal(&info->canon, &expected[i].shape));
        assert_int_equal(info->init.kind, expected[i].init.kind);
        assert_true(fabs(scale - expected[i].init.scale) < 1e-12);
        kolo_graph_destroy(g);
    }
}

/* Small forms of every kind of model. */
static const struct {
    const char *name, *options;
    bool tokens;
} kinds[] = {{"lenet", NULL, false},
             {"mlp", NULL, false},
             {"resnet20", NULL, false},
             {"resnet18", NULL, false},
             {"resnet50", NULL, false},
             {"alexnet", "units=64", false},
             {"vgg16", "units=64", false},
             {"googlenet", NULL, false},
             {"deeplabv3_resnet101", "aux=1", false},
             {"mobilenet_v2", "width=0.25", false},
             {"densenet121", "layers=17", false},
             {"vit_tiny", "layers=2,dropout=10", false},
             {"unet", "width=8", false},
             {"llama_tiny", NULL, true},
             {"gpt2_tiny", "dropout=10", true},
             {"gpt2_moe", "layers=2,dropout=10", true},
             {"lstm_lm", "dropout=10", true},
             {"bert_tiny", "dropout=10,nsp=1", true},
             {"dlrm", "dense=16,rows=50", true}};

static bool has_dnn(void) {
    for (size_t i = 0; kolo_kernel_at(i); i++) {
        if (strncmp(kolo_kernel_at(i)->name, "dnn_", 4) == 0) return true;
    }
    return false;
}

/* Conversions to f32 in bf16: vit_tiny adds parameters, the predictions that dlrm counts are made
 * of ops that compute in f32, and gpt2_moe chooses and weighs experts in f32. */
static int most_widened(const char *name) {
    if (strcmp(name, "dlrm") == 0) return 3;
    if (strcmp(name, "gpt2_moe") == 0) return 12;
    return strcmp(name, "vit_tiny") == 0 ? 2 : 0;
}

static void check_steps(const char *name, const kolo_plan *plan, bool half, bool train, int most) {
    int widened = 0;
    for (int s = 0; s < plan->n_steps; s++) {
        const kolo_kernel *kernel = plan->steps[s].kernel;
        if (!kernel) continue;
        if (kolo_kernel_is_ref(kernel)) fail_msg("%s: step %d is %s", name, s, kernel->name);
        const kolo_node *n = plan->graph->nodes[plan->steps[s].node];
        widened += n->op == &kolo_op_convert && n->attr[KOLO_CONVERT_DTYPE].i == KOLO_DTYPE_F32;
    }
    if (train && widened > most) fail_msg("%s: %d activations in f32", name, widened);
    if (!half) assert_int_equal(widened, 0);
}

/* Plans of every model, to train and to evaluate, in f32 and in bf16, without a reference kernel in
 * them, and, in bf16, without an activation that is widened again: every op takes it as it is.
 * Nothing runs. */
static void no_plan_falls_back(void **state) {
    if (!has_dnn()) { /* convolutions in general are oneDNN's */
        print_message("skip: built without oneDNN\n");
        skip();
    }
    for (size_t i = 0; i < 2 * KOLO_COUNT(kinds); i++) {
        kolo_model_opts opts = {2, {3, {3, 64, 64}}, 10, kinds[i / 2].options};
        if (kinds[i / 2].tokens) opts.sample = kolo_shape_1(16);
        kolo_store *store; /* the plan to evaluate takes that of the plan to train */
        ASSERT_OK(kolo_store_create(NULL, &store));
        for (int k = 0; k < 2; k++) {
            bool half = i % 2;
            kolo_graph *g;
            kolo_plan *plan;
            kolo_plan_opts how = {.train = k == 0,
                                  .optimizer.momentum = 0.9,
                                  .precision = half ? KOLO_PRECISION_BF16 : KOLO_PRECISION_F32};
            ASSERT_OK(build(kinds[i / 2].name, &opts, &g));
            ASSERT_OK(kolo_plan_compile(g, &how, store, NULL, &plan));
            check_steps(kinds[i / 2].name, plan, half, how.train, most_widened(kinds[i / 2].name));
            kolo_plan_destroy(plan);
        }
        kolo_store_destroy(store);
    }
}

static void gpt2_is_drawn_as_published(void **state) {
    static const struct {
        const char *name;
        kolo_init init;
    } expected[] = {
        {"wte.weight", {KOLO_INIT_NORMAL, 0.02}},
        {"wpe.weight", {KOLO_INIT_NORMAL, 0.01}},
        {"h.0.ln_1.weight", {KOLO_INIT_ONE, 0}},
        {"h.11.attn.c_attn.weight", {KOLO_INIT_NORMAL, 0.02}},
        {"h.11.attn.c_attn.bias", {KOLO_INIT_ZERO, 0}},
        {"h.3.attn.c_proj.weight", {KOLO_INIT_NORMAL, 0.02 / 4.898979485566356}},
        {"h.3.mlp.c_fc.weight", {KOLO_INIT_NORMAL, 0.02}},
        {"h.3.mlp.c_proj.weight", {KOLO_INIT_NORMAL, 0.02 / 4.898979485566356}},
        {"ln_f.bias", {KOLO_INIT_ZERO, 0}},
    };
    kolo_graph *g;
    ASSERT_OK(build("gpt2", &(kolo_model_opts){1, {1, {8}}, 50257, NULL}, &g));
    for (size_t i = 0; i < KOLO_COUNT(expected); i++) {
        kolo_value v = kolo_graph_find(g, expected[i].name);
        if (!kolo_value_ok(v)) fail_msg("no %s", expected[i].name);
        assert_int_equal(kolo_info(g, v)->init.kind, expected[i].init.kind);
        assert_true(fabs(kolo_info(g, v)->init.scale - expected[i].init.scale) < 1e-15);
    }
    kolo_graph_destroy(g);
}

/* A model's options define the window length and the vocabulary. */
static void windows_are_the_options(void **state) {
    const kolo_model *model;
    kolo_shape sample;
    int64_t classes;
    ASSERT_OK(kolo_model_find("gpt2", &model));
    ASSERT_OK(kolo_model_sample(model, "context=7,vocab=9", &sample, &classes));
    assert_true(sample.rank == 1 && sample.dim[0] == 7 && classes == 9);
    assert_int_equal(kolo_model_sample(model, "context=0", &sample, &classes), KOLO_ERR_ARG);
    for (const kolo_model *const *m = kolo_models(); *m; m++) {
        ASSERT_OK(kolo_model_sample(*m, NULL, &sample, &classes));
        assert_true(kolo_shape_equal(&sample, &(*m)->sample) && classes == (*m)->classes);
    }
}

/* Synthetic data has the classes given by the options. */
static void classes_are_the_options(void **state) {
    static const struct {
        const char *options;
        int64_t classes;
    } cases[] = {{NULL, 1000},
                 {"", 1000},
                 {"width=0.5", 1000},
                 {"classes=7", 7},
                 {"width=2,classes=7", 7},
                 {"classes=", 1000},
                 {"classes=-3", 1000},
                 {"classes=7x", 1000},
                 {"subclasses=7", 1000}};
    const kolo_model *model;
    kolo_shape sample;
    int64_t classes;
    ASSERT_OK(kolo_model_find("resnet18", &model));
    for (size_t i = 0; i < KOLO_COUNT(cases); i++) {
        ASSERT_OK(kolo_model_sample(model, cases[i].options, &sample, &classes));
        assert_int_equal(classes, cases[i].classes);
    }
}

static void the_zoo_is_complete(void **state) {
    int n = 0;
    for (const kolo_model *const *m = kolo_models(); *m; m++, n++) {
        const kolo_model *found;
        ASSERT_OK(kolo_model_find((*m)->name, &found));
        assert_ptr_equal(found, *m);
        assert_true((*m)->summary[0] != '\0' && (*m)->options_help != NULL);
    }
    assert_int_equal(n, 33);
}

/* The names of options in their help, "width=100 (percent of it), classes", as the list of what the
 * builder takes: "width, classes". With `given`, as the option text of the defaults instead. */
static void names_in_help(const char *help, kolo_text *known, kolo_text *given) {
    for (const char *at = help; *at;) {
        size_t name = strcspn(at, "=, "), item = strcspn(at, ", ");
        kolo_text_add(known, "%s%.*s", at > help ? ", " : "", (int)name, at);
        if (item > name) kolo_text_add(given, "%s%.*s", at > help ? "," : "", (int)item, at);
        at += item;
        if (strncmp(at, " (", 2) == 0) at = strchr(at, ')') + 1;
        at += strspn(at, ", ");
    }
}

/* The model's graph as text. */
static void print_model(const kolo_model *m, const char *options, kolo_text *text) {
    kolo_model_opts opts = {1, m->sample, m->classes, options};
    kolo_graph *g;
    ASSERT_OK(build(m->name, &opts, &g));
    kolo_graph_print(g, text);
    kolo_graph_destroy(g);
}

static void a_number_with_a_point_is_a_share(void **state) {
    static const struct {
        const char *model, *share, *whole;
    } pairs[] = {
        {"resnet50", "classes=1001,width=0.5", "classes=1001,width=32"},
        {"resnet20", "width=1.", "width=16"},
        {"deeplabv3_resnet101", "width=0.25,aux=1", "width=16,aux=1"},
        {"alexnet", "width=0.253,dropout=.1", "width=25,dropout=10"},
        {"googlenet", "width=2.0,aux_dropout=0.0", "width=200,aux_dropout=0"},
        {"gpt2_tiny", "dropout=0.1", "dropout=10"},
        {"bert_tiny", "percent=0.4,dropout=0.1", "percent=40,dropout=10"},
    };
    for (size_t i = 0; i < KOLO_COUNT(pairs); i++) {
        const kolo_model *m;
        kolo_text share = {0}, whole = {0};
        ASSERT_OK(kolo_model_find(pairs[i].model, &m));
        print_model(m, pairs[i].share, &share);
        print_model(m, pairs[i].whole, &whole);
        assert_string_equal(share.text, whole.text);
        kolo_text_fini(&share);
        kolo_text_fini(&whole);
    }
}

/* A model's option list is what its builder takes, and its defaults change nothing. */
static void options_match_their_documentation(void **state) {
    for (const kolo_model *const *each = kolo_models(); *each; each++) {
        const kolo_model *m = *each;
        if (!m->options_help[0]) continue;
        kolo_model_opts opts = {1, m->sample, m->classes, "--------"};
        kolo_graph *g;
        kolo_text known = {0}, given = {0}, a = {0}, b = {0};
        kolo_text_add(&known, "model %s has no option \"--------\": it has ", m->name);
        names_in_help(m->options_help, &known, &given);
        print_model(m, NULL, &a);
        print_model(m, given.text, &b);
        assert_string_equal(a.text, b.text);
        assert_int_equal(build(m->name, &opts, &g), KOLO_ERR_ARG);
        if (!strstr(kolo_last_error(), known.text)) {
            fail_msg("\"%s\" lacks \"%s\"", kolo_last_error(), known.text);
        }
        kolo_text_fini(&known);
        kolo_text_fini(&given);
        kolo_text_fini(&a);
        kolo_text_fini(&b);
    }
}

TEST_MAIN(test_models) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_can_be_registered),
        cmocka_unit_test(models_have_their_sizes),
        cmocka_unit_test(lenet_is_named_and_drawn_as_in_pytorch),
        cmocka_unit_test(what_does_not_suit_is_refused_in_words),
        cmocka_unit_test(resnets_are_named_and_drawn_as_in_torchvision),
        cmocka_unit_test(no_plan_falls_back),
        cmocka_unit_test(gpt2_is_drawn_as_published),
        cmocka_unit_test(windows_are_the_options),
        cmocka_unit_test(classes_are_the_options),
        cmocka_unit_test(the_zoo_is_complete),
        cmocka_unit_test(options_match_their_documentation),
        cmocka_unit_test(a_number_with_a_point_is_a_share),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
