// One step of the engine: the models' losses, the sums of nodes, grids, trials and candidates; and prediction.
#include "engine.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <stdexcept>
#include <string_view>

#include "layout.hpp"

namespace driftree {

constexpr int kScratchRows = 4096;
constexpr int kRest = 4;     // of so many rows, a node at rest looks at one
constexpr int kRecent = 16;  // what was recent fades so many times as fast as the rest

std::vector<const Functions*> all_functions() {
    std::vector<const Functions*> found = {&baseline_functions};
#ifdef DRIFTREE_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("x86-64-v3")) found.push_back(&avx2_functions);
    if (__builtin_cpu_supports("x86-64-v4")) found.push_back(&avx512_functions);
#endif
    return found;
}

const Functions& choose_functions() {
    const char* wish = std::getenv("DRIFTREE_ISA");
    const std::vector<const Functions*> found = all_functions();
    if (!wish || !*wish) return *found.back();
    for (const Functions* functions : found)
        if (std::string_view(functions->name) == wish) return *functions;
    throw std::invalid_argument("DRIFTREE_ISA must be baseline, avx2 or avx512, and this machine must have it");
}

Forward Engine::Pupil::before(const Shape& shape) {
    const auto fit = [](Lines<double>& values, std::size_t n) {
        if (values.size() < n) values.resize(n);
        return values.data();
    };
    return {fit(loss, rows.size()), fit(residual, rows.size() * shape.outputs), fit(advantage, rows.size()),
            fit(scratch, scratch_size(shape))};
}

// ---------------------------------------------------------------- models
Engine::Pupil& Engine::add_pupil(int model) {
    if (n_pupils_ == static_cast<int>(pupils_.size())) pupils_.push_back(std::make_unique<Pupil>());
    Pupil& pupil = *pupils_[n_pupils_++];
    pupil.model = model;
    pupil.rows.clear();
    return pupil;
}

// The model's lesson, or nullptr if the model has no rows in this step. To be asked in the order of enlist().
const Lesson* Engine::next_lesson(int model) {
    if (next_lesson_ == n_pupils_ || pupils_[next_lesson_]->model != model) return nullptr;
    return &lessons_[next_lesson_++];
}

// All models that have rows in this step: of the nodes, children before parents, each with its trials; the challenger.
void Engine::enlist() {
    n_pupils_ = next_lesson_ = 0;
    for (int s = n_stops_ - 1; s >= 0; s--) {
        Stop& stop = stops_[s];
        const bool is_resting = rests(stop.node);
        stop.stands_for = is_resting ? kRest : 1.0;
        Pupil& pupil = add_pupil(nodes.model[stop.node]);
        look_at(stop.rows, is_resting, pupil.rows);
        if (pupil.rows.empty()) {
            n_pupils_--;
            continue;
        }
        for (int t = stop.node * settings.trials; t < (stop.node + 1) * settings.trials; t++) {
            if (trials.feature[t] < 0) continue;
            const Condition goes_left = trials.condition(t);
            Pupil& left = add_pupil(trials.left_model[t]);
            Pupil& right = add_pupil(trials.right_model[t]);
            for (const int row : pupil.rows)
                (goes_left.holds(chunk_.raw_row(row, schema.n_features)) ? left : right).rows.push_back(row);
            if (left.rows.empty()) std::swap(pupils_[n_pupils_ - 2], pupils_[n_pupils_ - 1]);
            if (left.rows.empty() || right.rows.empty()) n_pupils_--;
        }
    }
    if (challenger < 0) return;
    Pupil& pupil = add_pupil(challenger);
    look_at(stops_[0].rows, challenger_rests(), pupil.rows);
    if (pupil.rows.empty()) n_pupils_--;
}

// Mostly as many rows have passed as last time: one, or a step's.
const Engine::Fade& Engine::fade_after(double rows) {
    if (rows != fade_.rows) {
        const double keep = std::exp(-rows / settings.evidence_window);
        fade_ = {rows, keep, std::pow(keep, kRecent)};
    }
    return fade_;
}

// Work is spared only in calm times. When the leaves have recently lost clearly more than in the long run, something has
// changed, and for a long while nothing is spared.
void Engine::step_calm() {
    double loss = 0.0, rows = 0.0;
    for (int i = 0; i < chunk_.n; i++) {
        loss += chunk_.weights[i] * leaf_loss_[i];
        rows += chunk_.weights[i];
    }
    const Fade fade = fade_after(rows);
    tree_loss = fade.keep * tree_loss + loss;
    tree_rows = fade.keep * tree_rows + rows;
    recent_loss = fade.keep_recent * recent_loss + loss;
    recent_rows = fade.keep_recent * recent_rows + rows;
    if (recent_loss * tree_rows > alarm_level * tree_loss * recent_rows) restless_until = clock + restless_rows;
}

// A node that is far from being pruned looks at a random row in four, which then stands for four: as long as its branch
// earns at least half of what it did in the long run.
bool Engine::rests(int node) const {
    if (!learning_.spares || nodes.left[node] < 0) return false;
    const double gain = nodes.own_loss[node] - nodes.subtree_loss[node];
    return gain >= nodes.rest_level[node] && kRecent * nodes.recent[node] >= 0.5 * gain;
}

void Engine::look_at(const std::vector<std::int32_t>& rows, bool rests, std::vector<std::int32_t>& seen) const {
    if (rests) {
        for (const int row : rows)
            if (mix64(settings.seed + static_cast<std::uint64_t>(n_rows + chunk_.n - row)) % kRest == 0) seen.push_back(row);
    } else {
        seen = rows;
    }
}

// Room for all that the models will say of their rows, and for what is kept of these.
void Engine::make_room_for_step() {
    lessons_.clear();
    for (int i = 0; i < n_pupils_; i++)
        lessons_.push_back({models[pupils_[i]->model].data(), pupils_[i]->visit(), pupils_[i]->before(shape)});
    node_loss_.resize(chunk_.n);
    leaf_loss_.resize(chunk_.n);
    due_.reserve(n_stops_);
    scaler.make_scratch();
    if (settings.by_gradient) return;
    grid_scratch_.resize(chunk_.n, shape.outputs * shape.stride);
    for (int s = 0; s < n_stops_; s++)
        grids[stops_[s].node].make_room_for(static_cast<int>(stops_[s].rows.size()), schema.n_features, settings.first_rows);
}

// What all models say of their rows before they learn them.
void Engine::forward() {
    const auto run = settings.by_gradient ? f_->sgd_forward : f_->blend_forward;
    run(shape, chunk_.rows(), lessons_.data(), n_pupils_);
}

void Engine::learn_models() {
    if (chunk_.n > 1)
        std::sort(lessons_.begin(), lessons_.end(), [](const Lesson& a, const Lesson& b) { return a.visit.n > b.visit.n; });
    const auto run = settings.by_gradient ? f_->sgd_learn : f_->blend_learn;
    run(shape, chunk_.rows(), lessons_.data(), n_pupils_, learning_);
}

void Engine::weights_of(int node, double* weights) const {
    const auto run = settings.by_gradient ? f_->sgd_weights : f_->blend_weights;
    run(shape, models[nodes.model[node]].data(), weights);
}

// ---------------------------------------------------------------- one step
// All memory is made before the first number changes (but for the paper's candidate store, which stays sound if its
// memory runs out in mid-step).
void Engine::learn(const double* X, const std::int32_t* y, const double* weights, int n) {
    due_.clear();
    if (n == 0) return;
    if (n_rows == 0) restride(padded(shape.columns), shape.outputs);  // the first rows' columns are known
    chunk_.fill(*f_, X, y, weights, n, schema.n_features, settings.seed, shape.stride);
    learning_.spares = is_calm();
    route();
    enlist();
    make_room_for_step();
    scaler.update(*f_, chunk_.raw.data(), chunk_.weights.data(), n, settings.by_gradient);
    chunk_.scale(*f_, schema, scaler, shape.stride, !settings.by_gradient);  // SGD takes all inputs
    for (int i = 0; i < n; i++) clock += chunk_.weights[i];
    n_rows = std::min(n_rows + n, kMostRows);
    n_steps = std::min(n_steps + 1, n_rows);
    forward();
    for (int s = n_stops_ - 1; s >= 0; s--) step_node(stops_[s]);  // children before parents
    if (challenger >= 0) step_challenger();
    if (!settings.by_gradient) step_calm();
    learn_models();
    for (int s = n_stops_ - 1; s >= 0; s--)
        if (is_due(stops_[s].node)) due_.push_back(stops_[s].node);
    if (n > kScratchRows) {  // do not keep the memory that a huge batch needed
        candidate_step_ = {};
        chunk_ = {};
        pupils_.clear();
        stops_.clear();
        n_pupils_ = n_stops_ = 0;
    }
}

// Sends the rows down the tree; stops_[0 .. n_stops_) are the visited nodes, parents before children.
void Engine::route() {
    auto next_stop = [&](int node) -> Stop& {
        if (n_stops_ == static_cast<int>(stops_.size())) stops_.emplace_back();
        Stop& stop = stops_[n_stops_++];
        stop.node = node;
        stop.rows.clear();
        return stop;
    };
    n_stops_ = 0;
    Stop& root = next_stop(0);
    for (int i = 0; i < chunk_.n; i++) root.rows.push_back(i);
    for (int s = 0; s < n_stops_; s++) {
        const int node = stops_[s].node;
        if (nodes.left[node] < 0) continue;
        const Condition goes_left = condition(node);
        for (const bool is_left : {true, false}) {
            Stop& child = next_stop(is_left ? nodes.left[node] : nodes.right[node]);
            for (const int row : stops_[s].rows)
                if (goes_left.holds(chunk_.raw_row(row, schema.n_features)) == is_left) child.rows.push_back(row);
            if (child.rows.empty()) n_stops_--;
        }
    }
}

void Engine::step_node(const Stop& stop) {
    const int node = stop.node;
    double* counts = class_rows[node].data();
    const Fade fade = settings.by_gradient ? Fade{} : fade_after(clock - nodes.clock[node]);
    const double keep = fade.keep;
    nodes.clock[node] = clock;
    const bool is_leaf = nodes.left[node] < 0;
    for (int k = 0; k < n_classes; k++) counts[k] *= keep;
    for (const int row : stop.rows) {
        counts[chunk_.labels[row]] += chunk_.weights[row];
        nodes.rows[node] += chunk_.weights[row];
    }
    double own = 0.0, subtree = 0.0, rows = 0.0;
    const Lesson* lesson = next_lesson(nodes.model[node]);
    const Visit visit = lesson ? lesson->visit : Visit{nullptr, 0};
    const Forward before = lesson ? lesson->before : Forward{};
    if (lesson) keep_finite(*lesson, nodes.model[node]);
    for (int i = 0; i < visit.n; i++) {
        const int row = visit.rows[i];
        const double weight = stop.stands_for * chunk_.weights[row];
        node_loss_[row] = before.loss[i];
        if (is_leaf) leaf_loss_[row] = before.loss[i];
        own += weight * before.loss[i];
        subtree += weight * leaf_loss_[row];
        rows += weight;
    }
    nodes.own_loss[node] = keep * nodes.own_loss[node] + own;
    nodes.subtree_loss[node] = keep * nodes.subtree_loss[node] + subtree;
    nodes.evidence[node] = keep * nodes.evidence[node] + rows;
    if (!is_leaf) nodes.recent[node] = fade.keep_recent * nodes.recent[node] + (own - subtree);
    if (settings.by_gradient) {
        step_candidates(node, visit, before, rows, own);
    } else {
        grids[node].fade(keep);
        step_grid(node, visit, before);
        step_trials(stop, keep);
    }
}

void Engine::step_grid(int node, const Visit& visit, const Forward& before) {
    Grid& grid = grids[node];
    if (grid.is_ready()) {
        grid.add(*f_, shape, schema, chunk_, visit, before.residual, grid_scratch_);
    } else {
        for (int i = 0; i < visit.n; i++)
            grid.collect(chunk_.raw_row(visit.rows[i], schema.n_features), schema.n_features, settings.first_rows);
    }
}

void Engine::step_trials(const Stop& stop, double keep) {
    const int node = stop.node;
    for (int t = node * settings.trials; t < (node + 1) * settings.trials; t++) {
        if (trials.feature[t] < 0) continue;
        double own = 0.0, subtree = 0.0, tried = 0.0, rows = 0.0;
        for (const bool is_left : {true, false}) {
            const Lesson* side = next_lesson(is_left ? trials.left_model[t] : trials.right_model[t]);
            if (!side) continue;
            keep_finite(*side, is_left ? trials.left_model[t] : trials.right_model[t]);
            double& count = is_left ? trials.n_left[t] : trials.n_right[t];
            for (int i = 0; i < side->visit.n; i++) {
                const int row = side->visit.rows[i];
                const double weight = stop.stands_for * chunk_.weights[row];
                own += weight * node_loss_[row];
                subtree += weight * leaf_loss_[row];
                tried += weight * side->before.loss[i];
                rows += weight;
                count += chunk_.weights[row];
            }
        }
        trials.node_loss[t] = keep * trials.node_loss[t] + own;
        trials.subtree_loss[t] = keep * trials.subtree_loss[t] + subtree;
        trials.trial_loss[t] = keep * trials.trial_loss[t] + tried;
        trials.evidence[t] = keep * trials.evidence[t] + rows;
    }
}

void Engine::step_candidates(int node, const Visit& visit, const Forward& before, double rows, double loss) {
    Lines<double>& gradient = node_gradient[node];
    gradient_before_ = gradient;
    candidate_step_.begin(*f_, shape, schema, chunk_, visit, before, settings.gain_step);
    candidate_step_.add_all(gradient.data());
    const NodeSums now = sums(node), then = {now.n - rows, now.loss - loss, gradient_before_.data()};
    const int budget = settings.candidates_per_feature * schema.n_features;
    candidate_step_.learn(candidates[node], then, now, budget, static_cast<int>(settings.replacement_rate * budget));
}

void Engine::settle() {
    for (int node = 0; node < settings.max_nodes && settings.by_gradient; node++)
        if (nodes.alive[node]) settle(node);
}

// With the floor a row costs at most kMostFloored; so no more is held against the link without it.
void Engine::step_challenger() {
    const double stands_for = challenger_rests() ? kRest : 1.0;
    const Lesson* lesson = next_lesson(challenger);
    const double keep = fade_after(clock - challenger_clock).keep;
    if (lesson) keep_finite(*lesson, challenger);
    double own = 0.0, rival = 0.0, rows = 0.0;
    for (int i = 0; lesson && i < lesson->visit.n; i++) {
        const int row = lesson->visit.rows[i];
        const double weight = stands_for * chunk_.weights[row];
        rows += weight;
        own += weight * std::min(lesson->before.loss[i], kMostFloored);
        rival += weight * std::min(leaf_loss_[row], kMostFloored);
    }
    challenger_loss = keep * challenger_loss + own;
    rival_loss = keep * rival_loss + rival;
    challenger_rows = keep * challenger_rows + rows;
    challenger_clock = clock;
}

// A model whose loss is no number can only have come from a file. It starts again, and pays for these rows what one that
// knows nothing pays.
void Engine::keep_finite(const Lesson& lesson, int model) {
    double sum = 0.0;
    for (int i = 0; i < lesson.visit.n; i++) sum += lesson.before.loss[i];
    if (sum < kLargest) return;
    restart_model(models[model]);
    std::fill_n(lesson.before.loss, lesson.visit.n, std::log(std::max(n_classes, 2)));
    std::fill_n(lesson.before.residual, static_cast<std::size_t>(lesson.visit.n) * shape.outputs, 0.0);
    if (!settings.by_gradient) std::fill_n(lesson.before.advantage, lesson.visit.n, 0.0);
    std::fill_n(lesson.before.scratch, scratch_size(shape), 0.0);
}

// Has anything of the node crossed a level that Python set? A cheap filter; Python decides.
bool Engine::is_due(int node) {
    const bool is_leaf = nodes.left[node] < 0;
    const double prune_gain = nodes.subtree_loss[node] - nodes.own_loss[node];
    if (!is_leaf && prune_gain >= nodes.prune_level[node]) return true;
    if (settings.by_gradient) {
        const double more = is_leaf ? 0.0 : prune_gain;
        const double level = is_leaf ? nodes.split_level[node] : nodes.replace_level[node];
        const double nearly = level - more - 1e-9 * (std::abs(level) + std::abs(more));
        const double best = candidates[node].best_gain(gain_rule(), sums(node), nearly);
        return best >= 0.0 && more + best >= level;
    }
    for (int t = node * settings.trials; t < (node + 1) * settings.trials; t++) {
        if (trials.feature[t] < 0) continue;
        if (trials.node_loss[t] - trials.trial_loss[t] < nodes.split_level[node]) continue;
        if (is_leaf || trials.subtree_loss[t] - trials.trial_loss[t] >= nodes.replace_level[node]) return true;
    }
    const Grid& grid = grids[node];
    return grid.is_ready() ? nodes.rows[node] >= nodes.refresh_at[node] : grid.n_first_rows >= settings.first_rows;
}

// ---------------------------------------------------------------- prediction
int Engine::leaf_of(const double* x) const {
    int node = 0;
    while (nodes.left[node] >= 0) node = condition(node).holds(x) ? nodes.left[node] : nodes.right[node];
    return node;
}

void Engine::logits_of(const double* rows, int n, std::int32_t* leaves, double* logits) const {
    Room inputs(static_cast<std::size_t>(n) * shape.stride), other(shape.outputs);
    Chunk::fill_inputs(*f_, schema, scaler, rows, n, shape.stride, inputs.data());
    double share_b = 0.0;
    for (int i = 0; i < n; i++, logits += shape.outputs) {
        leaves[i] = leaf_of(rows + static_cast<long>(i) * schema.n_features);
        double* memory = const_cast<double*>(models[nodes.model[leaves[i]]].data());
        const double* z = inputs.data() + static_cast<long>(i) * shape.stride;
        f_->logits(shape, adagrad_weights(shape, memory), z, logits);
        if (settings.by_gradient) continue;
        f_->logits(shape, newton_weights(shape, memory), z, other.data());
        if (i == 0 || leaves[i] != leaves[i - 1])
            share_b = 1.0 / (1.0 + std::exp(-reinterpret_cast<const Head*>(memory)->preference));
        for (int k = 0; k < shape.outputs; k++) logits[k] = (1.0 - share_b) * logits[k] + share_b * other.data()[k];
    }
}

int Engine::class_of(int leaf, const double* logits) const {
    return most_probable(shape, *reinterpret_cast<const Head*>(models[nodes.model[leaf]].data()), logits, n_classes);
}

void Engine::probabilities_of(int leaf, const double* logits, double* out) const {
    const Head& head = *reinterpret_cast<const Head*>(models[nodes.model[leaf]].data());
    fill_probabilities(shape, head, logits, n_classes, out);
}

}  // namespace driftree
