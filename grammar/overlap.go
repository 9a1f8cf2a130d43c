package grammar

import (
	"math"
	"slices"
	"strings"
)

// Overlap: two tools are near-duplicates if a model can't tell them apart by
// name and description. Each tool is a set of words of either kind; rare words
// of the catalog weigh more, log(1 + N/df). The measure is the weighted
// Jaccard index, shared weight by united weight.
//
// A tool is compared with those that share one of its rarest words: at most
// maxPostings neighbours, in the order of names, for each of maxRare words. So
// the work is N · 12 · 48 comparisons at most, whatever the catalog.
const (
	maxRare     = 12
	maxPostings = 48
	// Alike from here on. Names count as much as descriptions; a description
	// that is all but the same is enough by itself.
	alikeBoth  = 0.8
	alikeAbout = 0.95
)

// acting are verbs that mean the same to a caller.
var acting = func() map[string]string {
	m := map[string]string{}
	for _, line := range []string{
		"get fetch read retrieve show view describe load", "list enumerate ls", "search find lookup query", "create add make new insert register", "update edit modify change patch set",
		"delete remove erase destroy drop rm", "send post deliver", "run execute exec invoke", "stop halt cancel abort", "start begin launch", "copy duplicate clone", "move rename",
	} {
		words := strings.Fields(line)
		for _, w := range words {
			m[stem(w)] = words[0]
		}
	}
	return m
}()

// bag is a tool as overlap sees it: word ids, ascending.
type bag struct {
	name, about []int
	verb        string // the first word that acts, by its group; "" if none
}

// bagsOf gives the tools' words and the weight of each word.
func bagsOf(all []*subject) ([]bag, []float64) {
	ids := map[string]int{}
	var df []int
	take := func(words []string) []int {
		var out []int
		for _, w := range words {
			if filling[w] {
				continue
			}
			if w = stem(w); acting[w] != "" {
				w = acting[w]
			}
			id, ok := ids[w]
			if !ok {
				id = len(df)
				ids[w] = id
				df = append(df, 0)
			}
			out = append(out, id)
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	bags := make([]bag, len(all))
	for i, s := range all {
		bags[i] = bag{name: take(s.words), about: take(s.about)}
		for _, w := range s.verb {
			if v := acting[stem(w)]; v != "" {
				bags[i].verb = v
				break
			}
		}
		for _, id := range union(bags[i].name, bags[i].about) {
			df[id]++
		}
	}
	weight := make([]float64, len(df))
	for id := range df {
		weight[id] = math.Log1p(float64(len(all)) / float64(df[id]))
	}
	return bags, weight
}

// A match is another tool of the list and how alike it is; -1 for none.
type match struct {
	other int
	score float64
}

func overlaps(all []*subject, say func(int, string, string, ...any)) {
	best, _ := closest(all)
	for j, m := range best {
		if m.other >= 0 {
			say(j, "/description", "%.0f %% like %s: %q", 100*m.score, all[m.other].Name, clipText(all[m.other].Description, 100))
		}
	}
}

// closest gives for each tool the one before it by name that it is most alike,
// and how many comparisons that took.
func closest(all []*subject) (best []match, compared int) {
	bags, weight := bagsOf(all)
	byName := make([]int, len(all))
	for i := range byName {
		byName[i] = i
	}
	slices.SortStableFunc(byName, func(a, b int) int { return strings.Compare(all[a].Name, all[b].Name) })
	postings := make([][]int, len(weight)) // in the order of names
	for _, i := range byName {
		for _, id := range union(bags[i].name, bags[i].about) {
			postings[id] = append(postings[id], i)
		}
	}
	rank := make([]int, len(all)) // place in byName
	for r, i := range byName {
		rank[i] = r
	}
	best = make([]match, len(all))
	for i := range best {
		best[i].other = -1
	}
	for _, i := range byName {
		words := union(bags[i].name, bags[i].about)
		slices.SortStableFunc(words, func(a, b int) int { return len(postings[a]) - len(postings[b]) })
		seen := map[int]bool{}
		for _, id := range words[:min(len(words), maxRare)] {
			list := postings[id]
			// Those after this tool: the others have looked at it.
			from, _ := slices.BinarySearchFunc(list, rank[i]+1, func(j, r int) int { return rank[j] - r })
			for _, j := range list[from:min(len(list), from+maxPostings)] {
				if seen[j] || all[i].Name == all[j].Name {
					continue
				}
				seen[j] = true
				compared++
				if score := alike(&bags[i], &bags[j], weight); score > best[j].score {
					best[j] = match{i, score}
				}
			}
		}
	}
	return best, compared
}

// alike gives the likeness of two tools if it is enough, otherwise 0.
func alike(a, b *bag, weight []float64) float64 {
	about := jaccard(a.about, b.about, weight)
	if about == 1 && len(a.about) >= 3 {
		return about
	}
	if a.verb != b.verb { // to create is not to delete, however alike the rest
		return 0
	}
	if about >= alikeAbout && len(a.about) >= 3 {
		return about
	}
	name := jaccard(a.name, b.name, weight)
	if len(a.about) == 0 || len(b.about) == 0 {
		if name >= alikeAbout {
			return name
		}
		return 0
	}
	if s := (name + about) / 2; s >= alikeBoth {
		return s
	}
	return 0
}

func jaccard(a, b []int, weight []float64) float64 {
	var shared, all float64
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0] < b[0]:
			all += weight[a[0]]
			a = a[1:]
		case len(a) == 0 || b[0] < a[0]:
			all += weight[b[0]]
			b = b[1:]
		default:
			shared += weight[a[0]]
			all += weight[a[0]]
			a, b = a[1:], b[1:]
		}
	}
	if all == 0 {
		return 0
	}
	return shared / all
}

func union(a, b []int) []int {
	out := append(append(make([]int, 0, len(a)+len(b)), a...), b...)
	slices.Sort(out)
	return slices.Compact(out)
}

var (
	shellNames = set("bash sh zsh shell terminal powershell python_repl repl run_command execute_command run_shell shell_exec bash_exec run_bash exec_command run_shell_command")
	narrowVerb = set("read write edit list search find cat head tail copy move delete")
	narrowNoun = set("file files directory dir folder text")
)

// shells finds a universal tool next to the narrow ones that it makes
// ambiguous.
func shells(all []*subject, say func(int, string, string, ...any)) {
	var narrow []string
	for _, s := range all {
		if len(s.verb) == 2 && narrowVerb[s.verb[0]] && narrowNoun[s.verb[1]] || slices.Contains(s.verb, "grep") {
			narrow = append(narrow, s.Name)
		}
	}
	if len(narrow) == 0 {
		return
	}
	for i, s := range all {
		if shellNames[strings.Join(s.verb, "_")] {
			say(i, "/name", "%q can do what %s do", s.Name, quoteAll(narrow))
		}
	}
}
