package retrieval

import (
	"slices"
	"strings"
)

// chainShare is how much of a name must be spoken of, by the weights of
// nameCover.
const chainShare = 0.45

// general are stems of names that say what is done, not what is dealt with.
var general = func() map[string]bool {
	m := make(map[string]bool)
	for w := range strings.FieldsSeq("get set list create update delete add find search check show make send retrieve") {
		m[string(stemMark)+string(stem([]byte(w), true))] = true
	}
	return m
}()

// eachFeeder calls f with the tools of the same server whose names the
// description or the parameters of a tool speak of: the result of
// get_zipcode_based_on_city is what a parameter "zipcode of the first city" of
// estimate_distance takes. share is of the name's words that name a thing and
// that the tool's own name lacks.
func (ix *Index) eachFeeder(s *scratch, tool int32, f func(feeder int32, share float32)) {
	server := ix.server[tool]
	if server < 0 {
		return
	}
	for _, w := range ix.bags[tool].words {
		s.spoken[w.term] = w.freq[FieldDescription] > 0 || w.freq[FieldParameters] > 0
	}
	own := ix.names.own[tool]
	for _, other := range ix.members[server] {
		if other == tool {
			continue
		}
		whole, spoken := float32(0), float32(0)
		for _, t := range ix.names.own[other] {
			if ix.names.general[t] {
				continue
			}
			whole += ix.names.idf[t]
			if s.spoken[t] && !slices.Contains(own, t) {
				spoken += ix.names.idf[t]
			}
		}
		if whole > 0 && spoken > chainShare*whole {
			f(other, spoken/whole)
		}
	}
	for _, w := range ix.bags[tool].words {
		s.spoken[w.term] = false
	}
}
