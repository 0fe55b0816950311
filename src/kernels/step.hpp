// Step: the rows of one step on their way through a tree: which nodes they pass, and which models learn which of them.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "chunk.hpp"
#include "models.hpp"
#include "nodes.hpp"

namespace driftree {

struct Stop {  // the rows of this step at one node
    int node;
    std::vector<std::int32_t> rows;
    double stands_for;  // how many rows each row that the node looks at counts for
};

struct Pupil {  // a model that learns in this step
    int model;
    std::vector<std::int32_t> rows;
    Lines<double> loss, residual, scratch;
    std::vector<Signal> signal;
    Lines<double> inputs;  // of a model with bends: its own
    std::vector<std::int32_t> active, n_active, lines;
    Visit visit() const { return {rows.data(), static_cast<int>(rows.size())}; }
    Forward before(const Shape& shape) {
        const auto fit = [](auto& values, std::size_t n) {
            if (values.size() < n) values.resize(n);
            return values.data();
        };
        return {fit(loss, rows.size()), fit(residual, rows.size() * shape.outputs), fit(signal, rows.size()),
                fit(scratch, scratch_size(shape))};
    }
    void make_inputs(const Shape& shape, Lesson& lesson) {
        const std::size_t n = rows.size();
        inputs.resize(n * shape.stride);
        active.resize(n * shape.stride);
        n_active.resize(n);
        lines.resize(n);
        for (std::size_t i = 0; i < n; i++) lines[i] = static_cast<std::int32_t>(i);
        lesson.inputs = inputs.data();
        lesson.active = active.data();
        lesson.n_active = n_active.data();
        lesson.lines = lines.data();
    }
};

struct Step {  // kept between steps for its memory
    Chunk chunk;
    std::vector<Stop> stops;  // the first n_stops are visited in this step, parents before children
    int n_stops = 0;
    std::vector<std::unique_ptr<Pupil>> pupils;  // grows without moving what is there
    int n_pupils = 0;
    std::vector<Lesson> lessons;    // of the pupils, in their order until they learn
    std::vector<double> node_loss;  // per row of the chunk: what the node at work paid,
    std::vector<double> leaf_loss;  // and what its leaf paid

    // Sends the rows down the tree.
    void route(const Nodes& nodes, int n_features) {
        n_stops = 0;
        Stop& root = next_stop(0);
        for (int i = 0; i < chunk.n; i++) root.rows.push_back(i);
        for (int s = 0; s < n_stops; s++) {
            const Node& node = nodes[stops[s].node];
            if (node.is_leaf()) continue;
            for (const bool is_left : {true, false}) {
                Stop& child = next_stop(is_left ? node.left : node.right);
                for (const int row : stops[s].rows)
                    if (node.condition.holds(chunk.raw_row(row, n_features)) == is_left) child.rows.push_back(row);
                if (child.rows.empty()) n_stops--;
            }
        }
    }
    Pupil& add_pupil(int model) {
        if (n_pupils == static_cast<int>(pupils.size())) pupils.push_back(std::make_unique<Pupil>());
        Pupil& pupil = *pupils[n_pupils++];
        pupil.model = model;
        pupil.rows.clear();
        return pupil;
    }
    template <class Kind>
    void make_lessons(Models<Kind>& models, const Shape& shape) {
        lessons.clear();
        has_bends_ = false;
        for (int i = 0; i < n_pupils; i++) {
            Pupil& pupil = *pupils[i];
            Model& model = models[pupil.model];
            const Shape own = model.shape(shape);
            lessons.push_back({own, model.memory(), pupil.visit(), pupil.before(own), chunk.inputs.data(),
                               chunk.active.data(), chunk.n_active.data(), pupil.rows.data()});
            if (model.bends.n() == 0) continue;
            pupil.make_inputs(own, lessons.back());
            has_bends_ = true;
        }
        node_loss.resize(chunk.n);
        leaf_loss.resize(chunk.n);
        next_ = 0;
    }
    // The inputs of models with bends, once those of all are there.
    template <class Kind>
    void fill_bends(const Models<Kind>& models, const Table& table) {
        for (int i = 0; has_bends_ && i < n_pupils; i++) {
            Pupil& pupil = *pupils[i];
            const Model& model = models[pupil.model];
            if (model.bends.n() == 0) continue;
            const int stride = lessons[i].shape.stride, plain = static_cast<int>(chunk.inputs.size()) / chunk.n;
            for (std::size_t line = 0; line < pupil.rows.size(); line++) {
                const int row = pupil.rows[line];
                double* inputs = pupil.inputs.data() + line * stride;
                table.fill_bends(chunk.raw_row(row, table.n_features()),
                                 chunk.inputs.data() + static_cast<long>(row) * plain, model.bends, stride, inputs);
                pupil.n_active[line] = list_active(inputs, lessons[i].shape.columns, pupil.active.data() + line * stride);
            }
        }
    }
    // The model's lesson, or nullptr if the model has no rows in this step. To be asked in the order of the pupils.
    const Lesson* next_lesson(int model) {
        if (next_ == n_pupils || pupils[next_]->model != model) return nullptr;
        return &lessons[next_++];
    }
    void sort_lessons() {
        if (chunk.n > 1)
            std::sort(lessons.begin(), lessons.end(),
                      [](const Lesson& a, const Lesson& b) { return a.visit.n > b.visit.n; });
    }
    template <class Archive>
    void visit_scratch(Archive& a) {
        chunk.visit_scratch(a);
        a.each("stop", stops, [](auto& inner, Stop& stop) { inner("rows", stop.rows); });
        a.each("pupil", pupils, [](auto& inner, std::unique_ptr<Pupil>& p) {
            inner.owned(*p);
            inner("rows", p->rows), inner("loss", p->loss), inner("residual", p->residual);
            inner("signal", p->signal), inner("scratch", p->scratch), inner("inputs", p->inputs);
            inner("active", p->active), inner("n_active", p->n_active), inner("lines", p->lines);
        });
        a("node_loss", node_loss), a("leaf_loss", leaf_loss), a("lessons", lessons);
    }

private:
    Stop& next_stop(int node) {
        if (n_stops == static_cast<int>(stops.size())) stops.emplace_back();
        Stop& stop = stops[n_stops++];
        stop.node = node;
        stop.rows.clear();
        return stop;
    }
    int next_ = 0;
    bool has_bends_ = false;  // any of the models
};

}  // namespace driftree
