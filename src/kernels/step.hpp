// Step: the nodes that the rows of a step pass, and the rows that each model learns.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "chunk.hpp"
#include "models.hpp"
#include "nodes.hpp"

namespace driftree {

struct Pupil;
struct Stop {  // the rows of this step at one node
    int node;
    std::vector<std::int32_t> rows;
    std::int32_t rests;  // what rests: Trials::Rests
    double stands_for;   // rows that each row learnt by the node counts for
    const Pupil* pupil;  // the node's model with these rows, or nullptr
    bool has_grid;       // whether the grid counts any rows
    bool grid_rests;     // whether it counts only those in is_for_all
};

struct Pupil {  // a model that learns in this step
    int model;
    std::vector<std::int32_t> rows;
    Lines<double> loss, scratch;
    Lines<double> residual;  // and what the model said
    std::vector<Signal> signal;
    const Pupil* lender;                  // with the same bends and all of these rows: its inputs serve both; or nullptr
    std::vector<std::int32_t> lines;      // indices of the rows among the lender's
    std::size_t first_input, first_line;  // of a model with bends: where its inputs start
    const Pupil* source;                  // provides the sparse weights that it lacks; or nullptr
    bool is_taught;                       // the model has learnt the rows already
    struct {                              // sparse features of the rows
        std::vector<std::int32_t> begin, cells, ids, places;  // ids[cell]; places in the model, or -1
        std::vector<double> z, numbers;
        SparseLesson lesson;
    } sparse;
    Visit visit() const { return {rows.data(), static_cast<int>(rows.size())}; }
    // The rows are in the lender's order.
    void find_lines() {
        lines.clear();
        std::int32_t line = 0;
        for (const std::int32_t row : rows) {
            while (lender->rows[line] != row) line++;
            lines.push_back(line);
        }
    }
    void make_room(const Shape& shape, Forward& before) {
        const auto fit = [](auto& values, std::size_t n) {
            if (values.size() < n) values.resize(n);
            return values.data();
        };
        const std::size_t n_outputs = rows.size() * shape.outputs;
        before.loss = fit(loss, rows.size());
        before.residual = fit(residual, 2 * n_outputs);
        before.said = before.residual + n_outputs;
        before.signal = fit(signal, rows.size());
        before.scratch = fit(scratch, scratch_size(shape));
    }
};

// Reads the rows of a lesson in portions.
struct LessonRows {
    const Lesson* lesson = nullptr;
    int next = 0;
    // Calls each(place, row) for the next rows that come before row `end` of the step.
    template <class Each>
    void read(int end, Each&& each) {
        if (!lesson) return;
        const Visit visit = lesson->visit;
        int i = next;  // a local copy: the compiler must assume that `each` may write to `next`
        for (; i < visit.n && visit.rows[i] < end; i++) each(i, visit.rows[i]);
        next = i;
    }
};

struct Step {  // reused, for its memory
    Chunk chunk;
    std::vector<Stop> stops;  // the first n_stops are visited in this step, parents before children
    int n_stops = 0;
    std::vector<std::unique_ptr<Pupil>> pupils;  // growing does not move them
    int n_pupils = 0;
    std::vector<Lesson> lessons;  // of the pupils, in their order until training
    struct {                      // inputs of models with bends, one model after the other
        Lines<double> values;
        std::vector<std::int32_t> active, n_active;
    } bent;
    std::vector<std::uint8_t> is_for_all;  // per row of the chunk: whether what rests learns it as well
    std::vector<double> node_loss;         // per row of the chunk: loss of the current node,
    std::vector<double> leaf_loss;         // of the row's leaf,
    std::vector<double> told_loss;         // and of the tree, in which the leaf's renewed model has a share
    bool waits = false;                    // the rows came one at a time, and their leaves' models have learnt them

    // Routes the rows down the tree.
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
    // Routes the only row to its leaf alone.
    void route_to_leaf(const Nodes& nodes) {
        n_stops = 0;
        Stop& stop = next_stop(nodes.leaf_of(chunk.raw.data()));
        stop.rows.push_back(0);
        stop.stands_for = 1.0;
        stop.has_grid = stop.grid_rests = false;
    }
    Pupil& add_pupil(int model, const Pupil* lender = nullptr, const Pupil* source = nullptr) {
        if (n_pupils == static_cast<int>(pupils.size())) pupils.push_back(std::make_unique<Pupil>());
        Pupil& pupil = *pupils[n_pupils++];
        pupil.model = model;
        pupil.lender = lender;
        pupil.source = lender ? lender : source;
        pupil.is_taught = false;
        pupil.rows.clear();
        return pupil;
    }
    template <class Kind>
    void make_lessons(Models<Kind>& models, const Shape& shape) {
        lessons.clear();
        std::size_t n_inputs = 0, n_lines = 0;
        for (int i = 0; i < n_pupils; i++) {
            Pupil& pupil = *pupils[i];
            Model& model = models[pupil.model];
            const Shape own = model.shape(shape);
            Lesson& lesson = lessons.emplace_back();  // filled in place: copying what was just written would wait for it
            lesson.shape = own;
            lesson.model = model.memory();
            lesson.visit = pupil.visit();
            pupil.make_room(own, lesson.before);
            lesson.inputs = chunk.inputs.data();
            lesson.active = chunk.active.data();
            lesson.n_active = chunk.n_active.data();
            lesson.lines = pupil.rows.data();
            if (model.bends.n() == 0 || pupil.lender) continue;
            pupil.first_input = n_inputs;
            pupil.first_line = n_lines;
            n_inputs += pupil.rows.size() * own.stride;
            n_lines += pupil.rows.size();
        }
        if constexpr (Kind::kHasSparse)
            for (int i = 0; i < n_pupils && chunk.has_sparse(); i++)
                lessons[i].sparse = take_sparse(models, *pupils[i], shape);
        has_bends_ = n_lines > 0;
        if (has_bends_) make_bent_inputs(n_inputs, n_lines, shape);
        node_loss.resize(chunk.n);
        leaf_loss.resize(chunk.n);
        told_loss.resize(chunk.n);
        next_ = 0;
    }
    // Makes room for new sparse weights of the models, so that keep_sparse() cannot fail.
    template <class Kind>
    void make_sparse_room(Models<Kind>& models, const Shape& shape) const {
        for (int i = 0; i < n_pupils && !chunk.sparse.is_empty(); i++)
            models[pupils[i]->model].sparse.reserve(static_cast<int>(pupils[i]->sparse.ids.size()),
                                                    SparseCell::width(shape.outputs));
    }
    // Fills in the sparse inputs, once they are scaled.
    void fill_sparse() {
        for (int i = 0; i < n_pupils && !chunk.sparse.is_empty() && !chunk.sparse.is_even; i++) {
            Pupil& pupil = *pupils[i];
            std::size_t to = 0;
            for (const int row : pupil.rows)
                for (int c = chunk.sparse.begin[row]; c < chunk.sparse.begin[row + 1]; c++)
                    pupil.sparse.z[to++] = chunk.sparse.z[c];
        }
    }
    // Writes the sparse weights back into the models.
    template <class Kind>
    void keep_sparse(Models<Kind>& models, const Shape& shape) const {
        const int width = SparseCell::width(shape.outputs);
        for (int i = 0; i < n_pupils && !chunk.sparse.is_empty(); i++) {
            const Pupil& pupil = *pupils[i];
            SparseWeights& weights = models[pupil.model].sparse;
            const int line = pupil.sparse.lesson.line, step = line ? line : 1, next = line ? 1 : width;
            const std::int32_t* const ids = pupil.sparse.ids.data();
            const std::int32_t* const places = pupil.sparse.places.data();
            const double* from = pupil.sparse.lesson.numbers;
            const bool is_plain = weights.is_plain(width);
            const int n = pupil.sparse.lesson.n_cells;
            for (int cell = 0; cell < n; cell++, from += next) {
                const int place = places[cell] < 0 ? weights.insert(ids[cell], width) : places[cell];
                is_plain ? weights.write_plain(place, from, step) : weights.write(place, width, from, step);
            }
        }
    }
    // Fills in the inputs of models with bends for some rows. The common inputs, `plain` per row, must be there already.
    template <class Kind>
    void fill_bends(const Functions& f, const Models<Kind>& models, const Table& table, int plain, int begin, int end) {
        const Lines<double>& values = waits ? chunk.filled : chunk.raw;
        for (int i = 0; has_bends_ && i < n_pupils; i++) {
            Pupil& pupil = *pupils[i];
            const Model& model = models[pupil.model];
            if (model.bends.n() == 0 || pupil.lender) continue;
            const int stride = lessons[i].shape.stride;
            const auto place_of = [&](int row) { return std::lower_bound(pupil.rows.begin(), pupil.rows.end(), row); };
            const auto last = place_of(end) - pupil.rows.begin();
            for (auto line = place_of(begin) - pupil.rows.begin(); line < last; line++) {
                const int row = pupil.rows[line];
                const std::size_t first = pupil.first_input + line * stride;
                double* inputs = bent.values.data() + first;
                table.fill_bends(f, values.data() + static_cast<long>(row) * table.n_features(),
                                 chunk.inputs.data() + static_cast<long>(row) * plain, model.bends, stride, inputs);
                bent.n_active[pupil.first_line + line] =
                    list_active(inputs, lessons[i].shape.columns, bent.active.data() + first);
            }
        }
    }
    // The model's lesson, or nullptr if it has no rows in this step. Must be called in the order of the pupils.
    const Lesson* next_lesson(int model) {
        if (next_ == n_pupils || pupils[next_]->model != model) return nullptr;
        return &lessons[next_++];
    }
    void sort_lessons() {
        if (chunk.n > 1) std::sort(lessons.begin(), lessons.end(), &is_longer);
    }
    // Lists the lessons that have not been learnt yet, longest first. There is room for them.
    void list_untaught(std::vector<Lesson>& out) const {
        out.clear();
        for (int i = 0; i < n_pupils; i++)
            if (!pupils[i]->is_taught) out.push_back(lessons[i]);
        std::sort(out.begin(), out.end(), &is_longer);
    }
    template <class Archive>
    void visit_scratch(Archive& a) {
        chunk.visit_scratch(a);
        a.each("stop", stops, [](auto& inner, Stop& stop) { inner("rows", stop.rows); });
        a.each("pupil", pupils, [](auto& inner, std::unique_ptr<Pupil>& p) {
            inner.owned(*p);
            inner("rows", p->rows), inner("loss", p->loss), inner("residual", p->residual);
            inner("signal", p->signal), inner("scratch", p->scratch), inner("lines", p->lines);
            inner("sparse_begin", p->sparse.begin), inner("sparse_cells", p->sparse.cells);
            inner("sparse_ids", p->sparse.ids), inner("sparse_z", p->sparse.z), inner("sparse", p->sparse.numbers);
            inner("sparse_places", p->sparse.places);
        });
        a("bent_inputs", bent.values), a("bent_active", bent.active), a("bent_n_active", bent.n_active);
        a("is_for_all", is_for_all), a("node_loss", node_loss), a("leaf_loss", leaf_loss), a("told_loss", told_loss),
            a("lessons", lessons), a("counted", counted_);
    }

private:
    static bool is_longer(const Lesson& a, const Lesson& b) { return a.visit.n > b.visit.n; }
    // The sparse features of a model's rows and the model's numbers for them, each once.
    template <class Kind>
    SparseLesson* take_sparse(Models<Kind>& models, Pupil& pupil, const Shape& shape) {
        auto& own = pupil.sparse;
        const SparseInputs& held = chunk.sparse;
        const int width = SparseCell::width(shape.outputs);
        own.lesson = {};
        own.lesson.width = width;
        own.lesson.scale = &models[pupil.model].sparse.scale;
        if (held.is_even) {
            own.lesson.z = held.vectors.data();
            own.lesson.line = held.line;
            own.lesson.rows = pupil.rows.data();
            fit(own.numbers, static_cast<std::size_t>(held.line) * width);
            std::fill_n(own.numbers.data(), static_cast<std::size_t>(held.line) * width, 0.0);
            own.ids.assign(held.ids.begin(), held.ids.begin() + held.begin[1]);
            fit(own.places, own.ids.size());
            models[pupil.model].sparse.find(own.ids, width, own.places.data());
            take_vector_cells(models, pupil, held.begin[1], width, held.line);
        } else {
            fit(own.numbers, held.ids.size() * width);
            list_cells(models, pupil, width);
            own.z.resize(own.cells.size());
            own.lesson.begin = own.begin.data();
            own.lesson.cells = own.cells.data();
            own.lesson.z = own.z.data();
        }
        own.lesson.numbers = own.numbers.data();
        own.lesson.n_cells = static_cast<int>(own.ids.size());
        return &own.lesson;
    }
    // Gives each feature in the rows a cell.
    template <class Kind>
    void list_cells(const Models<Kind>& models, Pupil& pupil, int width) {
        auto& own = pupil.sparse;
        own.ids.clear();
        own.places.clear();
        own.begin.assign(1, 0);
        own.cells.clear();
        cell_of_.assign(chunk.sparse.n_ids, -1);
        for (const int row : pupil.rows) {
            for (int c = chunk.sparse.begin[row]; c < chunk.sparse.begin[row + 1]; c++) {
                std::int32_t& cell = cell_of_[chunk.sparse.numbers[c]];
                if (cell < 0) {
                    cell = static_cast<std::int32_t>(own.ids.size());
                    own.ids.push_back(chunk.sparse.ids[c]);
                    double* to = own.numbers.data() + static_cast<long>(cell) * width;
                    own.places.push_back(take_numbers(models, pupil, chunk.sparse.ids[c], width, to));
                }
                own.cells.push_back(cell);
            }
            own.begin.push_back(static_cast<std::int32_t>(own.cells.size()));
        }
    }
    // Like take_numbers(), where all rows have the same features: the source, which came before, uses the same cell.
    template <class Kind>
    static void take_vector_cells(const Models<Kind>& models, Pupil& pupil, int n, int width, int line) {
        const SparseWeights& weights = models[pupil.model].sparse;
        const bool is_plain = weights.is_plain(width);
        const double* from = pupil.source ? pupil.source->sparse.numbers.data() : nullptr;
        const std::int32_t* const places = pupil.sparse.places.data();
        double* to = pupil.sparse.numbers.data();
        for (int cell = 0; cell < n; cell++, to++) {
            if (const int place = places[cell]; place >= 0) {
                is_plain ? weights.read_plain(place, to, line) : weights.read(place, width, to, line);
            } else if (from) {
                for (int c = 0; c < width; c++) to[static_cast<long>(c) * line] = from[static_cast<long>(c) * line + cell];
                to[0] = std::min(to[0] * weights.loosening, models.rates.variance);
            } else {
                start_numbers(models, width, to, line);
            }
        }
    }
    // Copies the model's numbers for a feature, or its source's. Returns its place in the model, or -1.
    template <class Kind>
    static int take_numbers(const Models<Kind>& models, const Pupil& pupil, int id, int width, double* to) {
        const SparseWeights& weights = models[pupil.model].sparse;
        const int place = weights.find(id);
        if (place >= 0) {
            weights.read(place, width, to, 1);
            return place;
        }
        const SparseWeights* source = pupil.source ? &models[pupil.source->model].sparse : nullptr;
        if (const int there = source ? source->find(id) : -1; there >= 0) {
            source->read(there, width, to, 1);
            to[0] = std::min(to[0] * weights.loosening, models.rates.variance);
        } else {
            start_numbers(models, width, to, 1);
        }
        return -1;
    }
    template <class Kind>
    static void start_numbers(const Models<Kind>& models, int width, double* to, int step) {
        for (int c = 1; c < width; c++) to[static_cast<long>(c) * step] = 0.0;
        to[0] = models.rates.variance;
    }
    template <class Values>
    static void fit(Values& values, std::size_t n) {
        if (values.size() < n) values.resize(n);
    }
    Stop& next_stop(int node) {
        if (n_stops == static_cast<int>(stops.size())) stops.emplace_back();
        Stop& stop = stops[n_stops++];
        stop.node = node;
        stop.rows.clear();
        return stop;
    }
    // Makes room for the inputs of models with bends, and points their lessons to it.
    void make_bent_inputs(std::size_t n_inputs, std::size_t n_lines, const Shape& shape) {
        const auto fit = [](auto& values, std::size_t n) {
            if (values.size() >= n) return;
            values.reserve(n);  // exactly n: resize() alone would double
            values.resize(n);
        };
        fit(bent.values, n_inputs);
        fit(bent.active, n_inputs);
        fit(bent.n_active, n_lines);
        counted_.reserve(chunk.n);
        while (std::ssize(counted_) < chunk.n) counted_.push_back(static_cast<std::int32_t>(counted_.size()));
        for (int i = 0; i < n_pupils; i++) {
            if (lessons[i].shape.columns == shape.columns) continue;
            Pupil& own = *pupils[i];
            if (own.lender) own.find_lines();
            const Pupil& source = own.lender ? *own.lender : own;
            lessons[i].inputs = bent.values.data() + source.first_input;
            lessons[i].active = bent.active.data() + source.first_input;
            lessons[i].n_active = bent.n_active.data() + source.first_line;
            lessons[i].lines = own.lender ? own.lines.data() : counted_.data();
        }
    }
    std::vector<std::int32_t> cell_of_;  // cell of a sparse feature by its number, in the current lesson
    std::vector<std::int32_t> counted_;  // 0, 1, ...: the lines of a model that borrows none
    int next_ = 0;
    bool has_bends_ = false;  // whether any model has bends
};

// Buffered rows that came one at a time: their leaves' models have learnt them, everything else has not.
struct RowBlock {
    Step step;
    std::atomic<int> n = 0;
    std::vector<double> clock;           // the tree's clock at each row
    std::vector<double> loss, residual;  // of the leaf: [n], [n, outputs]
    std::vector<Lesson> lessons;         // not learnt yet
    void make_room(int most, int m, const Shape& shape) {
        step.waits = true;
        step.chunk.make_room(most, m, shape.stride);
        step.is_for_all.resize(most);
        clock.resize(most);
        loss.resize(most);
        residual.resize(static_cast<std::size_t>(most) * shape.outputs);
    }
    template <class Archive>
    void visit_scratch(Archive& a) {
        step.visit_scratch(a);
        a("clock", clock), a("loss", loss), a("residual", residual), a("lessons", lessons);
    }
};

}  // namespace driftree
