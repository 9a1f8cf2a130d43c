package cost

import (
	"errors"
	"fmt"

	"github.com/toolsidecar/sidecar/models"
)

// Defaults of Config.
const (
	// DenseMFU and ExpertsMFU are the shares of the peak rate that a prefill
	// reaches, for dense models and for mixtures of experts, whose matrices are
	// smaller. Assumed, to be replaced by a fit to an engine.
	DenseMFU   = 0.5
	ExpertsMFU = 0.3
	// BandwidthUtilisation is the share of the memory bandwidth that decoding
	// reaches; the factor which ai-dynamo/aiconfigurator@095f58a5 has for all GPUs.
	BandwidthUtilisation = 0.8
	// stateBytes is the size of one element of recurrent state: float32, which
	// engines keep it in for its accuracy.
	stateBytes = 4
)

// Precision is the number format of weights and of the products made with them, or
// of the KV cache.
type Precision int

const (
	BF16 Precision = iota // 2 bytes
	FP8                   // 1 byte
	FP4                   // half a byte; not for the KV cache
)

func (p Precision) String() string {
	switch p {
	case BF16:
		return "bf16"
	case FP8:
		return "fp8"
	case FP4:
		return "fp4"
	}
	return fmt.Sprintf("Precision(%d)", int(p))
}

// bytes per element.
func (p Precision) bytes() float64 { return 2 / float64(int(1)<<p) }

// Config is one model on one kind of GPU.
type Config struct {
	Model   *models.Model
	GPU     *models.GPU
	GPUs    int       // that share the work evenly; 0 means 1
	Weights Precision // also chooses the peak rate
	KV      Precision // BF16 or FP8
	// MFU is the share of the peak rate that a prefill reaches, above 0 and up to
	// 1; 0 means DenseMFU or ExpertsMFU.
	MFU float64
	// BWU is the share of the memory bandwidth that is reached, above 0 and up to
	// 1; 0 means BandwidthUtilisation.
	BWU float64
}

// UnknownError says that a card lacks a quantity, so that there is no estimate.
type UnknownError struct {
	Card     string // id of the model or GPU
	Quantity string // as the card calls it
	Why      string // more than that no source states it; may be empty
}

func (e *UnknownError) Error() string {
	s := fmt.Sprintf("no estimate: the card of %s has no %s", e.Card, e.Quantity)
	if e.Why != "" {
		s += " (" + e.Why + ")"
	}
	return s
}

// Calculator holds a checked Config. It is immutable and safe for concurrent use.
type Calculator struct {
	cfg  Config
	peak float64 // FLOP/s of all GPUs at Config.Weights, MFU applied; 0 when unknown
	bw   float64 // bytes/s of all GPUs, BWU applied
}

// New checks cfg. A quantity that a card lacks is not an error here, but in the
// estimate that needs it.
func New(cfg Config) (*Calculator, error) {
	if cfg.Model == nil || cfg.GPU == nil {
		return nil, errors.New("cost: a model and a GPU are needed")
	}
	if cfg.GPUs == 0 {
		cfg.GPUs = 1
	}
	if cfg.MFU == 0 {
		cfg.MFU = DenseMFU
		if mixture(cfg.Model) {
			cfg.MFU = ExpertsMFU
		}
	}
	if cfg.BWU == 0 {
		cfg.BWU = BandwidthUtilisation
	}
	switch {
	case cfg.GPUs < 0:
		return nil, fmt.Errorf("cost: %d GPUs", cfg.GPUs)
	case !(cfg.MFU > 0 && cfg.MFU <= 1):
		return nil, fmt.Errorf("cost: MFU %v is not above 0 and up to 1", cfg.MFU)
	case !(cfg.BWU > 0 && cfg.BWU <= 1):
		return nil, fmt.Errorf("cost: bandwidth utilisation %v is not above 0 and up to 1", cfg.BWU)
	case cfg.Weights < BF16 || cfg.Weights > FP4:
		return nil, fmt.Errorf("cost: weights in %v", cfg.Weights)
	case cfg.KV != BF16 && cfg.KV != FP8:
		return nil, fmt.Errorf("cost: KV cache in %v; bf16 and fp8 are known", cfg.KV)
	}
	c := &Calculator{cfg: cfg, bw: cfg.GPU.BWGBs * 1e9 * cfg.BWU * float64(cfg.GPUs)}
	if rate, _ := peak(cfg.GPU, cfg.Weights); rate != nil {
		c.peak = *rate * 1e12 * cfg.MFU * float64(cfg.GPUs)
	}
	return c, nil
}

// Config returns what New was given, with the defaults filled in.
func (c *Calculator) Config() Config { return c.cfg }

// peak returns the rate of p and what the card calls it.
func peak(g *models.GPU, p Precision) (*float64, string) {
	switch p {
	case FP8:
		return g.FP8TFLOPS, "fp8_tflops_dense"
	case FP4:
		return g.FP4TFLOPS, "fp4_tflops_dense"
	}
	return g.BF16TFLOPS, "bf16_tflops_dense"
}

// mixture says that a token uses part of the parameters only.
func mixture(m *models.Model) bool {
	return m.Experts > 0 || m.ParamsActiveB != nil && m.ParamsTotalB != nil && *m.ParamsActiveB < *m.ParamsTotalB
}
