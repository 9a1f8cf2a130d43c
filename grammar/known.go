package grammar

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
)

//go:embed known.json
var knownJSON []byte

// A Defect is something that an engine is known to do wrong.
type Defect struct {
	Engine string `json:"engine"`
	// From is the first version that has it and Until the first that hasn't;
	// "" for no such version.
	From  string `json:"from"`
	Until string `json:"until"`
	What  string `json:"what"` // is met
	// Effect is what happens then, Ours what is done about it.
	Effect string `json:"effect"`
	Ours   string `json:"ours"`
	// Hits: what we write can meet it, so that no tool is exact.
	Hits   bool   `json:"hits"`
	Source string `json:"source"`
}

// A Measurement says by what a version was found to keep what is written.
type Measurement struct {
	Engine  string `json:"engine"`
	Version string `json:"version"`
	By      string `json:"by"`
}

// engines is what known.json holds.
var engines struct {
	Measured []Measurement `json:"measured"`
	Wrong    []Defect      `json:"wrong"`
}

func init() {
	if err := json.Unmarshal(knownJSON, &engines); err != nil {
		panic("grammar: known.json: " + err.Error())
	}
}

// Defects are what is known to be wrong with an engine: of its version if that
// is known, and else of any.
func Defects(eng Engine) []Defect {
	var out []Defect
	for _, d := range engines.Wrong {
		if d.Engine == eng.Name && (d.From == "" || !before(eng.Version, d.From)) && (d.Until == "" || eng.Version == "" || before(eng.Version, d.Until)) {
			out = append(out, d)
		}
	}
	return out
}

// distrust is why no tool is exact on an engine; "" if some may be.
func distrust(eng Engine) string {
	name := strings.TrimSpace(eng.Name + " " + eng.Version)
	for _, d := range Defects(eng) {
		if d.Hits && eng.Version != "" {
			return fmt.Sprintf("#: %s: %s", name, d.Effect)
		}
	}
	for _, m := range engines.Measured {
		if m.Engine == eng.Name && m.Version == eng.Version {
			return ""
		}
	}
	return "#: " + name + " has not been measured"
}

// before tells whether a version is known and comes before another.
func before(version, other string) bool {
	var v, w [3]int
	if n, _ := fmt.Sscanf(version, "%d.%d.%d", &v[0], &v[1], &v[2]); n < 3 {
		return false
	}
	fmt.Sscanf(other, "%d.%d.%d", &w[0], &w[1], &w[2])
	for i := range v {
		if v[i] != w[i] {
			return v[i] < w[i]
		}
	}
	return false
}
