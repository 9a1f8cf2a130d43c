package proxy

import (
	"bytes"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"
)

type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec // route, status
	engine   *prometheus.CounterVec // kind
	refused  *prometheus.CounterVec // reason
	gone     *prometheus.CounterVec // phase
	active   prometheus.Gauge
	streams  prometheus.Gauge
	added    prometheus.Histogram
	panics   prometheus.Counter
}

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sidecar_requests_total", Help: "Requests by route and status; 499: the client left before a status was known.",
		}, []string{"route", "status"}),
		engine: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sidecar_engine_errors_total", Help: "Failed calls of the engine by kind.",
		}, []string{"kind"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sidecar_refused_total", Help: "Requests refused before the engine was called, by reason.",
		}, []string{"reason"}),
		gone: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sidecar_client_disconnects_total", Help: "Clients that left before their reply was complete, by phase.",
		}, []string{"phase"}),
		active: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "sidecar_active_requests", Help: "Requests under /v1 being served.",
		}),
		streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "sidecar_active_streams", Help: "Event streams being forwarded.",
		}),
		added: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "sidecar_added_latency_seconds", Help: "From a request's arrival to its reply's first byte, without the wait for the engine.",
			Buckets: []float64{25e-6, 50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3, 50e-3, 0.2, 1},
		}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sidecar_panics_total", Help: "Requests that ended in a fault of our own.",
		}),
	}
	m.registry.MustRegister(m.requests, m.engine, m.refused, m.gone, m.active, m.streams, m.added, m.panics,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// serveMetrics answers in the Prometheus text format.
func (p *Proxy) serveMetrics(x *exchange) {
	families, err := p.metrics.registry.Gather()
	if err != nil {
		x.fail("", serverError(500, "metrics", "gathering metrics: "+err.Error()))
		return
	}
	var out bytes.Buffer
	format := expfmt.NewFormat(expfmt.TypeTextPlain)
	enc := expfmt.NewEncoder(&out, format)
	for _, f := range families {
		if err := enc.Encode(f); err != nil {
			x.fail("", serverError(500, "metrics", "writing metrics: "+err.Error()))
			return
		}
	}
	x.reply(200, http.Header{"Content-Type": {string(format)}}, out.Bytes())
}
