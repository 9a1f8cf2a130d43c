package simengine

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics are those of vLLM that a client of the engine reads, by vLLM's names.
// As there each counter has a gauge with the time of its creation beside it.
type metrics struct {
	handler http.Handler
	started int64 // unix seconds

	queries, hits, cached      prometheus.Counter // tokens
	promptTokens, outputTokens prometheus.Counter
	success                    *prometheus.CounterVec
	ttft, itl, e2e             prometheus.Histogram
}

func newMetrics(e *Engine) *metrics {
	reg := prometheus.NewRegistry()
	labels := prometheus.Labels{"engine": "0", "model_name": e.cfg.Model}
	m := &metrics{handler: promhttp.HandlerFor(reg, promhttp.HandlerOpts{}), started: e.cfg.Clock.Now().Unix()}
	created := func(name string) {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: strings.TrimSuffix(name, "_total") + "_created", Help: "Unix time of the creation of " + name + ".", ConstLabels: labels,
		}, func() float64 { return float64(m.started) }))
	}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels})
		reg.MustRegister(c)
		created(name)
		return c
	}
	gauge := func(name, help string, read func() float64) {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, read))
	}
	histogram := func(name, help string, from float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, ConstLabels: labels, Buckets: prometheus.ExponentialBuckets(from, 2, 16)})
		reg.MustRegister(h)
		return h
	}
	m.queries = counter("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.")
	m.hits = counter("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.")
	m.cached = counter("vllm:prompt_tokens_cached_total", "Prompt tokens whose KV was not computed anew.")
	m.promptTokens = counter("vllm:prompt_tokens_total", "Prompt tokens of admitted requests.")
	m.outputTokens = counter("vllm:generation_tokens_total", "Generated tokens.")
	m.success = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "vllm:request_success_total", Help: "Finished requests.", ConstLabels: labels}, []string{"finished_reason"})
	reg.MustRegister(m.success)
	created("vllm:request_success_total")
	for _, r := range []string{"stop", "length", "abort", "error"} {
		m.success.WithLabelValues(r)
	}
	gauge("vllm:num_requests_running", "Requests that run.", func() float64 { n, _, _ := e.sched.load(); return float64(n) })
	gauge("vllm:num_requests_waiting", "Requests that wait for admission.", func() float64 { _, n, _ := e.sched.load(); return float64(n) })
	gauge("vllm:kv_cache_usage_perc", "Share of the cache's blocks that requests hold, 0 to 1.", func() float64 { _, _, u := e.sched.load(); return u })
	m.ttft = histogram("vllm:time_to_first_token_seconds", "Time from arrival to the first token.", 0.001)
	m.itl = histogram("vllm:inter_token_latency_seconds", "Time between tokens.", 0.001)
	m.e2e = histogram("vllm:e2e_request_latency_seconds", "Time from arrival to the end.", 0.01)
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "vllm:cache_config_info", Help: "Configuration of the cache.",
		ConstLabels: prometheus.Labels{
			"engine": "0", "block_size": strconv.Itoa(e.cfg.BlockSize), "num_gpu_blocks": strconv.Itoa(e.cfg.KVBlocks),
			"kv_cache_size_tokens": strconv.Itoa(e.cfg.KVBlocks * e.cfg.BlockSize), "enable_prefix_caching": "True", "prefix_caching_hash_algo": "sha256",
		},
	})
	info.Set(1)
	reg.MustRegister(info)
	return m
}

func (m *metrics) admitted(s *sequence) {
	m.queries.Add(float64(len(s.prompt)))
	m.hits.Add(float64(s.cached))
	m.cached.Add(float64(s.cached))
	m.promptTokens.Add(float64(len(s.prompt)))
}

func (m *metrics) firstToken(d time.Duration) {
	m.outputTokens.Inc()
	m.ttft.Observe(d.Seconds())
}

func (m *metrics) nextToken(d time.Duration) {
	m.outputTokens.Inc()
	m.itl.Observe(d.Seconds())
}

func (m *metrics) finished(s *sequence, reason string, d time.Duration) {
	m.success.WithLabelValues(reason).Inc()
	m.e2e.Observe(d.Seconds())
}
