package grammar

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Table prints a report, one line for us and one for each peer.
func Table(w io.Writer, r *Report, markdown bool) error {
	head := []string{"engine", "compiled", "right", "valid", "rejected", "invalid", "accepted", "compile p50", "p90", "p99", "max µs", "mask avg", "p50", "p90", "p99", "max µs", "warm copy"}
	rows := [][]string{head, line("sidecar", r)}
	for _, name := range []string{"xgrammar", "xgrammar-loose", "llguidance", "outlines-core"} {
		if p := r.Peers[name]; p != nil {
			rows = append(rows, line(name, p))
		}
	}
	width := make([]int, len(head))
	for _, row := range rows {
		for i, cell := range row {
			width[i] = max(width[i], len([]rune(cell)))
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d schemas, vocabulary %s, %d masks timed; a grammar holds %d bytes, at most %d\n", r.Schemas, r.Tokenizer, r.Masks, r.Memory.Avg, r.Memory.Max)
	if markdown {
		b.WriteByte('\n')
	}
	for n, row := range rows {
		for i, cell := range row {
			switch {
			case markdown:
				fmt.Fprintf(&b, "| %s ", cell)
			case i == 0:
				fmt.Fprintf(&b, "%-*s", width[i], cell)
			default:
				fmt.Fprintf(&b, "  %*s", width[i], cell)
			}
		}
		if markdown {
			b.WriteString("|")
			if n == 0 {
				b.WriteString("\n" + strings.Repeat("| --- ", len(row)) + "|")
			}
		}
		b.WriteByte('\n')
	}
	if !markdown {
		fmt.Fprintf(&b, "warm: pointer p50 %.3f µs, written out %.3f µs, plain copy of as many bytes %.3f µs\n", r.WarmMaskUS.P50, r.WarmMaskUS.Copy, r.WarmMaskUS.Memcpy)
		reasons(&b, r)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func line(name string, r *Report) []string {
	us := func(x float64) string { return fmt.Sprintf("%.*f", digits(x), x) }
	out := []string{name, fmt.Sprint(r.Compiled), fmt.Sprint(r.SchemasRight), fmt.Sprint(r.Valid.Accepted), fmt.Sprint(r.Valid.Rejected), fmt.Sprint(r.Invalid.Rejected), fmt.Sprint(r.Invalid.Accepted)}
	warm := r.WarmMaskUS.P50
	if r.WarmMaskUS.Copy > 0 { // ours: peers have no other way
		warm = r.WarmMaskUS.Copy
	}
	for _, x := range []float64{r.CompileUS.P50, r.CompileUS.P90, r.CompileUS.P99, r.CompileUS.Max, r.MaskUS.Avg, r.MaskUS.P50, r.MaskUS.P90, r.MaskUS.P99, r.MaskUS.Max, warm} {
		out = append(out, us(x))
	}
	return out
}

func digits(x float64) int {
	switch {
	case x >= 100:
		return 0
	case x >= 1:
		return 1
	}
	return 3
}

// reasons lists what was refused, where the language is wider, and what was
// judged wrong, the first twenty of each.
func reasons(b *strings.Builder, r *Report) {
	const most = 20
	for i, x := range r.Refused {
		if i == most {
			fmt.Fprintf(b, "and %d more refused\n", len(r.Refused)-most)
			break
		}
		fmt.Fprintf(b, "refused %s: %s\n", x.File, strings.TrimPrefix(strings.Join(slices.DeleteFunc([]string{x.Path, x.Keyword, x.Reason}, func(s string) bool { return s == "" }), ": "), ": "))
	}
	if n := len(r.Narrower); n > 0 {
		fmt.Fprintf(b, "narrower, as it is meant to be: %d valid instances lie outside, the first %s: test %d\n", n, r.Narrower[0].File, r.Narrower[0].Test)
	}
	for i, x := range r.Wider {
		if i == most {
			fmt.Fprintf(b, "and %d more wider\n", len(r.Wider)-most)
			break
		}
		fmt.Fprintf(b, "wider %s: test %d; left to the check: %s\n", x.File, x.Test, strings.Join(x.Reasons[:min(len(x.Reasons), 3)], "; "))
	}
	for i, x := range r.Wrong {
		if i == most {
			fmt.Fprintf(b, "and %d more judged wrong\n", len(r.Wrong)-most)
			break
		}
		if x.Valid {
			fmt.Fprintf(b, "wrong %s: test %d is valid and was rejected\n", x.File, x.Test)
		} else {
			fmt.Fprintf(b, "wrong %s: test %d is invalid and was accepted\n", x.File, x.Test)
		}
	}
}
