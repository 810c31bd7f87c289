// The search of the instrument that does not decide: it ends where the other tells more.
#include <cmath>
#include <utility>

#include "dstune/search/verifying.hpp"

namespace dstune {

namespace {

class ScreeningTuner : public Tuner {
 public:
  ScreeningTuner(std::unique_ptr<Tuner> inner,
                 std::function<std::optional<InstrumentPrices>()> prices)
      : inner_(std::move(inner)), prices_(std::move(prices)) {}

  std::optional<std::size_t> next() override {
    if (is_dear()) return std::nullopt;
    const auto chosen = inner_->next();
    if (chosen) ++num_begun_;
    return chosen;
  }
  void observe(std::size_t index, const Observation& observation) override {
    ++num_ended_;
    inner_->observe(index, observation);
  }
  void revise(std::size_t index, const Observation& observation) override {
    inner_->revise(index, observation);
  }
  [[nodiscard]] bool is_done() const override {
    return inner_->is_done() || (is_dear() && num_ended_ >= num_begun_);
  }
  [[nodiscard]] std::size_t max_waiting() const override { return 0; }
  [[nodiscard]] std::vector<Skipped> skipped() const override {
    std::vector<Skipped> all = inner_->skipped();
    if (!is_dear()) return all;
    for (Skipped& one : all)
      one.reason = "a run of the engine tells more for its time than one of our own step";
    return all;
  }
  [[nodiscard]] std::optional<double> chance_of_better() const override {
    return inner_->chance_of_better();
  }

 private:
  /// The others wait for the first, which says what a run costs.
  [[nodiscard]] bool is_dear() const {
    if (num_ended_ == 0) return num_begun_ > 0;
    const auto prices = prices_();
    return prices && !is_own_step_worth_it(*prices);
  }

  std::unique_ptr<Tuner> inner_;
  std::function<std::optional<InstrumentPrices>()> prices_;
  std::size_t num_begun_ = 0, num_ended_ = 0;
};

}  // namespace

bool is_own_step_worth_it(const InstrumentPrices& prices) {
  const auto lost_by_run = [](double doubt, double run_error) {
    const double both = doubt + run_error * run_error;
    return both > 0 ? doubt * doubt / both : 0;
  };
  const double of_own = std::pow(prices.own_error, 2);
  const double of_all = of_own + std::pow(prices.engine_error, 2);
  return lost_by_run(of_own, prices.own_run_error) * prices.engine_s >
         lost_by_run(of_all, prices.engine_run_error) * prices.own_s;
}

std::unique_ptr<Tuner> make_screening_tuner(
    std::unique_ptr<Tuner> inner, std::function<std::optional<InstrumentPrices>()> prices) {
  return std::make_unique<ScreeningTuner>(std::move(inner), std::move(prices));
}

}  // namespace dstune
