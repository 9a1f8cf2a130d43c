package grammar

import (
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/toolsidecar/sidecar/grammar/accept"
	"github.com/toolsidecar/sidecar/models/jsontext"
	"github.com/toolsidecar/sidecar/models/toolname"
)

// Where the rules come from: sections of the specification this project was
// built from.
const (
	fromTuple    = "Tool Interface Schemas: Anatomy of the tool declaration (five-tuple)"
	fromTable2   = "Tool Interface Schemas: table 2"
	fromQuality  = "Tool Interface Schemas: The schema quality effect"
	fromTable3   = "Tool Interface Schemas: table 3"
	fromContra   = "Tool Interface Schemas: Contradiction resolution via docstrings"
	fromBudget   = "Tool Interface Schemas: Context budget trade-offs"
	fromSafe     = "Toolkit granularity: Safe-by-default semantics"
	fromDryRun   = "Toolkit granularity: Dry-run simulation flags"
	fromOrthogon = "Toolkit granularity: Orthogonality"
	fromPitfall  = "Pitfall: an instruction is not a check"
	fromListing  = "Tool discovery: advertising a tool confers no authority (poisoned descriptions)"
)

// A description says a word again and again that stands in it seven times or more
// and is more than every sixth of its words.
const (
	stuffedTimes = 7
	stuffedShare = 6
)

var rules = []Rule{
	{ID: "schema-invalid", Severity: Error, Source: fromTuple,
		Title: "the parameters are not a schema that can be judged",
		Fix:   "correct the schema at the place named; the other rules look at it after that",
		tool: func(s *subject, say say) {
			if s.refused != nil {
				say("/parameters"+strings.TrimPrefix(s.refused.Loc, "#"), "%s", s.refused.Msg)
			}
		}},
	{ID: "name-invalid", Severity: Error, Source: fromTuple,
		Title: "the name is not one that the API takes",
		Fix:   "use 1 to 64 of A-Z a-z 0-9 _ -",
		tool: func(s *subject, say say) {
			if !validName.MatchString(s.Name) {
				say("/name", "name %q", clipText(s.Name, 80))
			}
		}},
	{ID: "text-hidden", Severity: Error, Source: fromListing,
		Title: "a text holds characters that people don't see and models do",
		Fix:   "take out control, zero-width, direction and tag characters",
		tool: func(s *subject, say say) {
			s.texts(func(loc, text string) {
				for i, r := range text {
					if hidden(r) || r == utf8.RuneError && !strings.Contains(text, "\uFFFD") {
						say(loc, "character U+%04X at byte %d", r, i)
						return
					}
				}
			})
		}},
	{ID: "text-control-token", Severity: Error, Source: fromListing,
		Title: "a text spells a token by which models tell turns and calls apart",
		Fix:   "write it another way; a tool has no business with the chat framing",
		tool: func(s *subject, say say) {
			s.texts(func(loc, text string) {
				if m := controlToken.FindString(text); m != "" {
					say(loc, "spells %q", m)
				}
			})
		}},
	{ID: "required-undeclared", Severity: Error, Source: fromTuple,
		Title: "a required key is not a declared parameter",
		Fix:   "declare it under properties, or take it out of required",
		object: func(s *subject, o *objectPlace, say say) {
			elsewhere := func(p accept.Subschema) bool { // may declare what isn't seen here
				return hasAny(p.Value(), "patternProperties", "oneOf", "anyOf", "$dynamicRef", "if", "dependentSchemas")
			}
			if slices.ContainsFunc(o.places, elsewhere) || mapOf(o.places) {
				return
			}
			declared := map[string]bool{}
			for _, p := range o.places {
				for _, m := range p.Value().Get("properties").List() {
					declared[m.Key] = declared[m.Key] || !m.Val.IsFalse()
				}
			}
			for _, p := range o.places {
				for _, e := range p.Value().Get("required").Items() {
					if !declared[e.Str] {
						say(pointerOf(p)+"/required", "required %q is not declared: a closed tool can never be called", clipText(e.Str, 80))
					}
				}
			}
		}},
	{ID: "bounds-contradict", Severity: Error, Source: fromTuple,
		Title: "no value can keep the bounds",
		Fix:   "correct the lower or the upper bound",
		tool: func(s *subject, say say) {
			s.schemas(func(loc string, v *jsontext.Value) {
				if why := contradiction(v, draftOf(s.root)); why != "" {
					say(loc, "%s", why)
				}
			})
		}},
	{ID: "default-misfit", Severity: Error, Source: fromTuple,
		Title: "a default does not fit its own schema",
		Fix:   "give a default from the parameter's domain, or none",
		param: func(s *subject, p *param, say say) {
			for _, q := range p.places {
				if d := q.Value().Get("default"); d != nil {
					if err := s.checked.fit(d, q, "#"+q.Place()+"/default"); err != nil {
						say(pointerOf(q)+"/default", "%s", err.(*DefaultError).Msg)
					}
				}
			}
		}},
	{ID: "enum-misfit", Severity: Error, Source: fromTuple,
		Title: "a listed value does not fit the schema that lists it",
		Fix:   "correct the value, or the type and bounds beside enum",
		param: func(s *subject, p *param, say say) {
			for _, q := range p.places {
				values := q.Value().Get("enum").Items()
				for i, e := range values[:min(len(values), maxListed)] {
					if err := s.checked.fit(e, q, "#"+q.Place()); err != nil {
						say(pointerOf(q)+"/enum/"+strconv.Itoa(i), "%s", err.(*DefaultError).Msg)
					}
				}
			}
		}},
	{ID: "unsafe-default", Severity: Error, Source: fromSafe,
		Title: "left out, the parameter does harm",
		Fix:   "let the default be the value that changes or loses nothing",
		param: func(s *subject, p *param, say say) {
			d := p.get("default")
			if d.IsTrue() && (p.named(harmful) || p.named(confirming) && !p.named(rehearsal)) {
				say(p.loc+"/default", "%q is true when the model says nothing", p.name)
			}
			if d != nil && d.Kind == '"' && harmfulMode[strings.ToLower(d.Str)] {
				say(p.loc+"/default", "%q is %q when the model says nothing", p.name, d.Str)
			}
		}},
	{ID: "name-duplicate", Severity: Error, Source: fromTuple,
		Title: "two tools have one name",
		Fix:   "rename one, by a prefix for its server say",
		catalog: func(all []*subject, say func(int, string, string, ...any)) {
			first := map[string]int{}
			for i, s := range all {
				if j, ok := first[s.Name]; ok {
					say(i, "/name", "also the name of tool %d of the list", j+1)
				} else {
					first[s.Name] = i
				}
			}
		}},

	{ID: "description-missing", Severity: Warning, Source: fromTuple,
		Title: "the tool has no description",
		Fix:   "say in a sentence or two what it does, when to use it and what it returns",
		tool: func(s *subject, say say) {
			if len(s.about) == 0 {
				say("/description", "no description")
			}
		}},
	{ID: "description-short", Severity: Warning, Source: fromQuality,
		Title: "the description says no more than the name",
		Fix:   "say what it does, when to use it and what it returns",
		tool: func(s *subject, say say) {
			if len(s.about) > 0 && (len(s.about) < 4 || len(beyond(s.about, s.words)) == 0) {
				say("/description", "%q", clipText(s.Description, 80))
			}
		}},
	{ID: "description-commands", Severity: Warning, Source: fromListing,
		Title: "the description gives the model orders beside describing the tool",
		Fix:   "describe what the tool does; put policy into the system prompt, and what must hold into a check",
		tool: func(s *subject, say say) {
			s.texts(func(loc, text string) {
				if !strings.Contains(text, " ") && text[:min(1, len(text))] != "<" {
					return
				}
				if m := command.FindString(text); m != "" {
					say(loc, "says %q", m)
				}
			})
		}},
	{ID: "description-stuffed", Severity: Warning, Source: fromListing,
		Title: "the description is written for a search, not for a reader",
		Fix:   "say once what the tool does; repeated words and lists of keywords push it in front of better ones",
		tool: func(s *subject, say say) {
			if m := keywordList.FindString(s.Description); m != "" {
				say("/description", "lists %q", clipText(m, 80))
				return
			}
			count := map[string]int{}
			for _, w := range s.about {
				if filling[w] || len(w) < 3 {
					continue
				}
				if count[stem(w)]++; count[stem(w)] >= stuffedTimes && count[stem(w)]*stuffedShare > len(s.about) {
					say("/description", "says %q again and again", w)
					return
				}
			}
		}},
	{ID: "param-undescribed", Severity: Warning, Source: fromQuality,
		Title: "a parameter has no description",
		Fix:   "say what it is, in which format, and what happens at the edges",
		param: func(s *subject, p *param, say say) {
			if len(toolname.Words(p.about)) == 0 {
				say(p.loc, "%q has no description", p.name)
			}
		}},
	{ID: "type-missing", Severity: Warning, Source: fromTuple,
		Title: "a parameter has no type",
		Fix:   "say which of string, integer, number, boolean, array and object it is",
		param: func(s *subject, p *param, say say) {
			if len(p.types) == 0 && p.places[0].Value().Kind == '{' && !p.has("$ref", "not", "if", "$dynamicRef") {
				say(p.loc, "%q may be any JSON", p.name)
			}
		}},
	{ID: "unit-missing", Severity: Warning, Source: fromQuality + "; " + fromTable3 + ", file chunk size",
		Title: "a quantity is given without its unit",
		Fix:   "put the unit into the name (timeout_seconds) and the description",
		param: func(s *subject, p *param, say say) {
			if !p.only("integer", "number") || p.listed() || !p.named(dimension) || p.named(dimensionless) {
				return
			}
			priced := p.named(money) && slices.ContainsFunc(s.params, func(q *param) bool { return slices.Contains(q.words, "currency") })
			if !p.saysUnit() && !priced {
				say(p.loc, "%q: of what unit?", p.name)
			}
		}},
	{ID: "size-unbounded", Severity: Warning, Source: fromTable3 + ", file chunk size",
		Title: "a size or count has no lower bound: -1 for \"all\" fits",
		Fix:   "give minimum, and maximum where the host has a limit",
		param: func(s *subject, p *param, say say) {
			if p.only("integer", "number") && !p.listed() && p.named(sizes) && !p.has("minimum", "exclusiveMinimum") {
				say(p.loc, "%q has no minimum", p.name)
			}
		}},
	{ID: "number-as-string", Severity: Warning, Source: fromTable3 + ", process termination",
		Title: "a number is declared as a string",
		Fix:   "make it an integer or number with its bounds or enum, or give the pattern",
		param: func(s *subject, p *param, say say) {
			n := len(p.words)
			numeric := numerals[p.last()] || n > 1 && p.last() == "code" && set("exit status error return http response")[p.words[n-2]]
			if p.only("string") && !p.listed() && !p.has("pattern", "format") && numeric {
				say(p.loc, "%q is any string", p.name)
			}
		}},
	{ID: "object-untyped", Severity: Warning, Source: fromTable3 + ", HTTP request body",
		Title: "an object says nothing of its keys",
		Fix:   "declare properties, or additionalProperties: true or a schema where any key is meant",
		param: func(s *subject, p *param, say say) {
			if p.only("object") && !p.listed() && !p.has("properties", "additionalProperties", "patternProperties", "propertyNames", "unevaluatedProperties", "allOf", "anyOf", "oneOf", "$dynamicRef") {
				say(p.loc, "%q: which keys?", p.name)
			}
		}},
	{ID: "array-untyped", Severity: Warning, Source: fromTuple,
		Title: "an array says nothing of its items",
		Fix:   "give items a schema",
		param: func(s *subject, p *param, say say) {
			if p.only("array") && !p.listed() && !p.has("items", "prefixItems", "contains", "unevaluatedItems") {
				say(p.loc, "%q: items of what?", p.name)
			}
		}},
	{ID: "hash-unformatted", Severity: Warning, Source: fromTable3 + ", Git commit target",
		Title: "a hash, UUID or revision may be any string",
		Fix:   "give a pattern such as ^[0-9a-f]{40}$, or format: uuid",
		param: func(s *subject, p *param, say say) {
			if p.only("string") && p.hashed() && !p.listed() && !p.has("pattern", "format") {
				say(p.loc, "%q has neither pattern nor format", p.name)
			}
		}},
	{ID: "name-vague", Severity: Warning, Source: fromTable3 + ", Git commit target; " + fromQuality,
		Title: "a name could mean anything",
		Fix:   "name what it is: commit_hash for target, size_bytes for size, query for input",
		tool: func(s *subject, say say) {
			if len(s.verb) == 1 && vagueTool[s.verb[0]] {
				say("/name", "tool %q", s.Name)
			}
		},
		param: func(s *subject, p *param, say say) {
			if len(p.words) == 1 && (vague[p.words[0]] || len(p.name) == 1 && !set("x y z k n")[strings.ToLower(p.name)]) &&
				!p.listed() && !p.paired() && !p.has("pattern", "format", "properties", "additionalProperties") && len(beyond(toolname.Words(p.about), p.words)) < 3 {
				say(p.loc, "%q, described as %q", p.name, clipText(p.about, 60))
			}
		}},
	{ID: "path-vague", Severity: Warning, Source: fromQuality,
		Title: "a path may be absolute, relative or a URI",
		Fix:   "say which, and relative to what",
		param: func(s *subject, p *param, say say) {
			if p.only("string") && paths[p.last()] && !p.listed() && !p.has("pattern", "format") && !pathKind.MatchString(p.about) {
				say(p.loc, "%q, described as %q", p.name, clipText(p.about, 60))
			}
		}},
	{ID: "time-unformatted", Severity: Warning, Source: fromQuality,
		Title: "a date or time has no format",
		Fix:   "give format: date-time or date, or name the format in the description",
		param: func(s *subject, p *param, say say) {
			if p.only("string") && (moments[p.last()] || len(p.words) > 1 && p.last() == "at") && !p.listed() && !p.has("pattern", "format") && !timeFormat.MatchString(p.about) {
				say(p.loc, "%q, described as %q", p.name, clipText(p.about, 60))
			}
		}},
	{ID: "enum-in-words", Severity: Warning, Source: fromQuality + " (bounded enumerations)",
		Title: "the description lists the values and the schema doesn't",
		Fix:   "list them under enum",
		param: func(s *subject, p *param, say say) {
			if !p.only("string") || p.listed() || p.has("pattern", "format") {
				return
			}
			if values := listedIn(p.about); len(values) > 1 {
				say(p.loc, "%q: enum %s?", p.name, quoteAll(values))
			}
		}},
	{ID: "bound-in-words", Severity: Warning, Source: fromPitfall + "; " + fromTable3,
		Title: "the description gives a bound and the schema doesn't",
		Fix:   "give minimum and maximum; words are no check",
		param: func(s *subject, p *param, say say) {
			if !p.only("integer", "number") || p.listed() {
				return
			}
			low := p.has("minimum", "exclusiveMinimum")
			high := p.has("maximum", "exclusiveMaximum")
			for _, b := range []struct {
				re    *regexp.Regexp
				given bool
			}{{rangeWords, low && high}, {lowWords, low}, {highWords, high}} {
				if m := b.re.FindString(p.about); m != "" && !b.given {
					say(p.loc, "%q: %q", p.name, m)
					return
				}
			}
		}},
	{ID: "keyword-idle", Severity: Warning, Source: fromTuple,
		Title: "a bound has no effect on the declared type",
		Fix:   "correct the type, or use the keyword of that type",
		tool: func(s *subject, say say) {
			s.schemas(func(loc string, v *jsontext.Value) {
				t := v.Get("type")
				if t == nil {
					return
				}
				var types []string
				for _, e := range append(slices.Clip(t.Elems), t) {
					types = append(types, e.Str)
				}
				for _, m := range v.Members {
					if on, ok := acts[m.Key]; ok && !slices.ContainsFunc(types, func(t string) bool { return strings.Contains(on, t) && t != "" }) {
						say(loc+"/"+m.Key, "%s on a %s", m.Key, strings.Join(slices.DeleteFunc(types, func(t string) bool { return t == "" }), " or "))
					}
				}
			})
		}},
	{ID: "object-open", Severity: Warning, Source: fromTuple + "; " + fromTable2,
		Title: "undeclared keys are let through beside declared ones",
		Fix:   "additionalProperties: false; a map belongs into a parameter of its own",
		object: func(s *subject, o *objectPlace, say say) {
			names := quoteAll(namesOf(o.params))
			for _, p := range o.places {
				a := p.Value().Get("additionalProperties")
				if len(o.params) > 0 && a != nil && (a.IsTrue() || a.Kind == '{' && len(a.Members) == 0) {
					say(pointerOf(p)+"/additionalProperties", "any key fits beside %s", names)
				}
			}
		}},
	{ID: "option-conflict", Severity: Warning, Source: fromContra,
		Title: "two switches contradict each other and nothing says which wins",
		Fix:   "make them one enum, or say in the tool's description that they exclude each other",
		object: func(s *subject, o *objectPlace, say say) {
			if exclusive.MatchString(s.Description) || constrained(o.places) {
				return
			}
			var flags []*param
			for _, p := range o.params {
				if p.only("boolean") && len(flags) < maxFlags {
					flags = append(flags, p)
				}
			}
			for i, a := range flags {
				for _, b := range flags[i+1:] {
					if opposite(a.words, b.words) {
						say(b.loc, "%q and %q can both be true", a.name, b.name)
					}
				}
			}
			modes := map[string][]string{}
			for _, p := range flags {
				if len(p.words) == 2 && set("as to output format mode use")[p.words[0]] {
					modes[p.words[0]] = append(modes[p.words[0]], p.name)
				}
			}
			for _, first := range []string{"as", "to", "output", "format", "mode", "use"} {
				if len(modes[first]) > 2 {
					say(o.loc, "%s are one choice", quoteAll(modes[first]))
				}
			}
		}},
	{ID: "exclusion-hidden", Severity: Warning, Source: fromContra,
		Title: "that parameters exclude each other stands with a parameter only",
		Fix:   "say it in the tool's description, or by oneOf or not in the schema",
		param: func(s *subject, p *param, say say) {
			if m := exclusive.FindString(p.about); m != "" && !exclusive.MatchString(s.Description) && !constrained(s.objects[0].places) {
				say(p.loc, "%q: %q", p.name, m)
			}
		}},
	{ID: "param-twins", Severity: Warning, Source: fromContra,
		Title: "two parameters have one name but for its spelling",
		Fix:   "keep one",
		object: func(s *subject, o *objectPlace, say say) {
			first := map[string]string{}
			for _, p := range o.params {
				key := strings.Join(p.words, " ")
				if before, ok := first[key]; ok && key != "" {
					say(p.loc, "%q and %q", before, p.name)
				} else {
					first[key] = p.name
				}
			}
		}},
	{ID: "dry-run-missing", Severity: Warning, Source: fromDryRun,
		Title: "a destructive tool can't be rehearsed",
		Fix:   "add a boolean dry_run with the default true, or a confirmation that must be given",
		tool: func(s *subject, say say) {
			if s.refused != nil || !s.destroys() || slices.ContainsFunc(s.params, func(p *param) bool { return p.named(rehearsal) || p.named(confirming) }) {
				return
			}
			say("/parameters", "tool %q has neither dry_run nor a confirmation", s.Name)
		}},
	{ID: "dry-run-off", Severity: Warning, Source: fromDryRun,
		Title: "the rehearsal is not what happens by default",
		Fix:   "default: true, so that the model has to say that it means it",
		param: func(s *subject, p *param, say say) {
			if p.only("boolean") && p.named(rehearsal) && p.get("default").IsFalse() {
				say(p.loc+"/default", "%q is false when the model says nothing", p.name)
			}
		}},
	{ID: "overwrite-implicit", Severity: Warning, Source: fromSafe,
		Title: "a tool that writes files doesn't say whether it overwrites",
		Fix:   "add a boolean overwrite with the default false, or a mode",
		tool: func(s *subject, say say) {
			if s.refused != nil || len(s.verb) == 0 || !set("write save export download put copy move")[s.verb[0]] {
				return
			}
			aboutFiles := slices.ContainsFunc(s.verb, func(w string) bool { return filePlaces[stem(w)] || filePlaces[w] })
			into := slices.ContainsFunc(s.params, func(p *param) bool {
				return p.root && p.only("string") && (filePlaces[p.last()] || aboutFiles && set("dest destination target output")[p.last()])
			})
			told := slices.ContainsFunc(s.params, func(p *param) bool { return p.named(overwriting) })
			if into && !told {
				say("/parameters", "tool %q: what if the file is there?", s.Name)
			}
		}},
	{ID: "tool-overlap", Severity: Warning, Source: fromOrthogon, Title: "two tools do the same, as far as a model can tell",
		Fix: "keep one, or say in each description when to use it and not the other", catalog: overlaps},
	{ID: "shell-overlap", Severity: Warning, Source: fromOrthogon, Title: "a shell stands beside tools that it could replace",
		Fix: "offer the shell, or the narrow tools, not both", catalog: shells},

	{ID: "tool-large", Severity: Info, Source: fromBudget,
		Title: "the schema costs a lot of the prompt",
		Fix:   "shorten descriptions, drop what models don't need, split the tool",
		tool: func(s *subject, say say) {
			if n := len(s.Schema) + len(s.Description); n > largeTool {
				say("/parameters", "%d bytes, some %d tokens", n, n/4)
			}
		}},
	{ID: "world-silent", Severity: Info, Source: fromTuple + "; " + fromTable2,
		Title: "the schema doesn't say whether other keys fit",
		Fix:   "additionalProperties: false; this sidecar reads it so, other hosts don't",
		object: func(s *subject, o *objectPlace, say say) {
			if o.root && len(o.params) > 0 && !slices.ContainsFunc(o.places, func(p accept.Subschema) bool {
				return hasAny(p.Value(), "additionalProperties", "unevaluatedProperties", "patternProperties")
			}) {
				say(o.loc, "silent about keys other than %s", quoteAll(namesOf(o.params)))
			}
		}},
	{ID: "param-echo", Severity: Info, Source: fromQuality,
		Title: "a description repeats the parameter's name",
		Fix:   "say what the name can't: format, meaning of edge values, where to get it",
		param: func(s *subject, p *param, say say) {
			if w := toolname.Words(p.about); len(w) > 0 && len(beyond(w, p.words)) == 0 {
				say(p.loc, "%q: %q", p.name, clipText(p.about, 60))
			}
		}},
	{ID: "string-unbounded", Severity: Info, Source: fromTuple + " (bounded domain)",
		Title: "a string may be of any length",
		Fix:   "give maxLength, or enum, pattern or format",
		param: func(s *subject, p *param, say say) {
			if p.only("string") && !p.listed() && !p.has("maxLength", "pattern", "format") {
				say(p.loc, "%q has no maxLength", p.name)
			}
		}},
	{ID: "number-unbounded", Severity: Info, Source: fromTable3 + ", file chunk size",
		Title: "a number has no bound on one side",
		Fix:   "give minimum and maximum",
		param: func(s *subject, p *param, say say) {
			low, high := p.has("minimum", "exclusiveMinimum"), p.has("maximum", "exclusiveMaximum")
			if p.only("integer", "number") && !p.listed() && !(low && high) {
				say(p.loc, "%q has no %s", p.name, map[[2]bool]string{{true, false}: "maximum", {false, true}: "minimum", {false, false}: "bounds"}[[2]bool{low, high}])
			}
		}},
	{ID: "array-unbounded", Severity: Info, Source: fromTuple + " (bounded domain)",
		Title: "an array may have any number of items",
		Fix:   "give maxItems",
		param: func(s *subject, p *param, say say) {
			if p.only("array") && !p.listed() && !p.has("maxItems") {
				say(p.loc, "%q has no maxItems", p.name)
			}
		}},
	{ID: "id-unformatted", Severity: Info, Source: fromTable3 + ", Git commit target",
		Title: "an identifier has neither a format nor a source",
		Fix:   "give a pattern or an example, or name the tool that returns it",
		param: func(s *subject, p *param, say say) {
			if p.only("string") && set("id ids uid key")[p.last()] && !p.hashed() && !p.listed() && !p.has("pattern", "format", "examples", "example") && !sourced.MatchString(p.about) {
				say(p.loc, "%q, described as %q", p.name, clipText(p.about, 60))
			}
		}},
	{ID: "path-empty", Severity: Info, Source: fromTable2,
		Title: "a path may be empty",
		Fix:   "give minLength: 1",
		param: func(s *subject, p *param, say say) {
			if p.only("string") && paths[p.last()] && !p.listed() && !p.has("minLength", "pattern", "format") {
				say(p.loc, "%q may be \"\"", p.name)
			}
		}},
	{ID: "dry-run-absent", Severity: Info, Source: fromDryRun,
		Title: "a tool that changes what is there can't be rehearsed",
		Fix:   "add a boolean dry_run with the default true that returns what would change",
		tool: func(s *subject, say say) {
			if s.refused == nil && len(s.verb) > 0 && altering[s.verb[0]] && !s.destroys() && !slices.ContainsFunc(s.params, func(p *param) bool { return p.named(rehearsal) || p.named(confirming) }) {
				say("/parameters", "tool %q has no dry_run", s.Name)
			}
		}},
	{ID: "handle-carried", Severity: Info, Source: fromOrthogon,
		Title: "the model has to carry a handle of the host from call to call",
		Fix:   "let one call do the whole step: read a range of a path, apply a patch",
		param: func(s *subject, p *param, say say) {
			if p.root && p.required && (p.last() == "fd" || p.last() == "handle" && p.only("integer") || p.last() == "descriptor" && len(p.words) > 1 && p.words[len(p.words)-2] == "file") {
				say(p.loc, "%q", p.name)
			}
		}},
	{ID: "default-idle", Severity: Info, Source: fromTuple,
		Title: "a required parameter has a default, which is never used",
		Fix:   "take it out of required, or drop the default",
		param: func(s *subject, p *param, say say) {
			if p.required && p.has("default") {
				say(p.loc, "%q is required", p.name)
			}
		}},
	{ID: "default-unstated", Severity: Info, Source: fromTuple,
		Title: "nothing says what happens when the parameter is left out",
		Fix:   "give a default, or say it in the description",
		param: func(s *subject, p *param, say say) {
			if p.root && !p.required && p.only("string", "integer", "number", "boolean") && !p.has("default", "const") && !leftOut.MatchString(p.about) {
				say(p.loc, "%q is optional", p.name)
			}
		}},
}

// Each value of an enum is held against all of them, and each switch against
// the others; a tool made for the purpose has many.
const (
	maxListed = 200 // values of an enum looked at
	maxFlags  = 100 // switches of an object compared
)

// largeTool is some 1,000 tokens at 4 bytes each; the specification reckons
// with 300 for a tool.
const largeTool = 4096

var (
	validName    = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	controlToken = regexp.MustCompile(`<\|[A-Za-z0-9_ ]{1,40}\|>|</?(?:tool_call|tool_response|tools|think)>|\[/?INST\]|<<SYS>>|<(?:start|end)_of_turn>|<｜[^>]{1,40}｜>`)
	command      = regexp.MustCompile(`(?i)ignore (?:all |any )?(?:of )?(?:the )?(?:previous|prior|above|other) (?:instructions|tools|prompts)|(?:do not|don't|never) (?:tell|inform|mention|reveal|show)(?: this| it)?(?: to)? (?:the )?user|before (?:using|calling) any other tool|(?:always|must) (?:call|use) this tool (?:first|before)|<important>`)
	exclusive    = regexp.MustCompile(`(?i)mutually exclusive|exclude each other|not both|(?:only|exactly|at most) one of|(?:can ?not|can't|must not|may not) be (?:used|combined|set|given)(?: together)? (?:with|if|when)`)
	pathKind     = regexp.MustCompile(`(?i)absolute|relative|canonical|root|workspace|working directory|home|uri|url|bucket|key|/`)
	timeFormat   = regexp.MustCompile(`(?i)iso|rfc|yyyy|hh:mm|\d\d:\d\d|\d{4}-\d\d|unix|epoch|cron|duration|relative`)
	sourced      = regexp.MustCompile(`(?i)return|from |as given|as listed|listed by|found by|e\.g|example|such as|see |uuid|ulid|slug|prefix|starts with|[a-z]+_[a-z]+`)
	leftOut      = regexp.MustCompile(`(?i)default|left out|omit|if not|when not|unless|without|absent|empty|optional|only`)
	rangeWords   = regexp.MustCompile(`(?i)\b(?:between|from) -?\d[\d.,]* (?:and|to) -?\d[\d.,]*|\(?-?\d+ ?(?:–|-|\.\.) ?\d+\)|\b(?:range|in) \[?-?\d+ ?(?:,|-|–|to|\.\.) ?\d+`)
	lowWords     = regexp.MustCompile(`(?i)\bat least -?\d[\d.,]*|\bminimum(?: of| is|:)? -?\d[\d.,]*|\bmin\.?:? -?\d+|\bmust be (?:positive|non-negative|greater than|above|>)|\bnot negative\b|\bpositive (?:integer|number)`)
	highWords    = regexp.MustCompile(`(?i)\bat most -?\d[\d.,]*|\bmaximum(?: of| is|:)? -?\d[\d.,]*|\bmax\.?:? -?\d+|\bnot exceed -?\d[\d.,]*|\bno more than -?\d[\d.,]*|\bup to -?\d[\d.,]*|\bmust be (?:less than|below|<)`)
)

var (
	harmful     = set("force forced overwrite recursive delete purge permanent permanently hard truncate replace cascade destroy irreversible unsafe insecure wipe autoapprove")
	harmfulMode = set("overwrite replace truncate delete force permanent hard purge")
	confirming  = set("confirm confirmed confirmation approve approved acknowledge")
	rehearsal   = set("dry dryrun preview simulate simulation simulated rehearse plan whatif noop")
	overwriting = set("overwrite append mode exists exclusive replace clobber create force backup conflict")
	altering    = set("update edit modify patch replace rename merge rewrite")
	filePlaces  = set("path file filename filepath directory dir folder")
	// keywordList is a label with five terms or more behind it.
	keywordList = regexp.MustCompile(`(?i)\b(?:key ?words|search terms|tags|seo|synonyms|aliases|also known as|related terms)\s*[:=]\s*(?:[^,;|\n]{1,40}[,;|]){4,}`)

	// of the name of a quantity that has a dimension
	dimension = set(`timeout delay duration interval ttl wait latency period age backoff elapsed lifetime retention cooldown deadline
		size memory disk capacity bandwidth storage buffer chunk
		distance radius height width altitude elevation length thickness
		weight mass temperature speed velocity pressure volume angle rotation bearing frequency power energy voltage
		price amount cost fee budget balance salary discount probability humidity`)
	money         = set("price amount cost fee budget balance salary")
	dimensionless = set("ratio factor count index number id version level score rank zoom unit units")
	units         = set(`second seconds sec secs millisecond milliseconds millis msec microseconds us ns nanoseconds ms minute minutes mins hour hours hr hrs day days week weeks month months year years
		byte bytes bit bits kb mb gb tb kib mib gib tib kbps mbps kilobytes megabytes gigabytes
		character characters chars words tokens line lines page pages row rows item items entry entries record records result results element elements level levels step steps
		pixel pixels px pt em dpi percent percentage pct fraction
		metre metres meter meters km kilometre kilometres kilometer kilometers mile miles foot feet ft inch inches cm mm centimetres centimeters millimetres millimeters
		kg gram grams kilogram kilograms lb lbs pound pounds ounce ounces tonnes tons
		celsius fahrenheit kelvin degree degrees deg radian radians
		usd eur gbp dollar dollars cent cents euro euros currency
		mph kmh knots rpm hz khz mhz ghz hertz watt watts kwh volt volts ampere amps joule joules cal kcal calories litre litres liter liters ml pascal hpa bar psi`)
	lastUnits = set("s m h g l c f v w min d") // in names, at the end
	sizes     = set(`size count limit max chunk length bytes offset page retries attempts depth timeout delay ttl top quantity workers threads concurrency batch width height
		days hours minutes seconds ms duration interval per total`)
	numerals  = set("signal port pid count size limit offset page seconds ms minutes hours days bytes percent retries timeout quantity amount price")
	hashes    = set("hash sha sha1 sha256 sha512 md5 digest checksum commit uuid guid revision refspec")
	vague     = set("data value input target arg args argument param params parameter parameters obj object item thing info options opts payload content stuff flag val var field body config settings element entity")
	vagueTool = set("run do process handle execute exec call tool action perform invoke query main go test helper util manage")
	paths     = set("path paths filepath dir directory folder")
	moments   = set("date time datetime timestamp deadline since until birthday")
)

// acts tells on which types a keyword has an effect.
var acts = map[string]string{
	"minLength": "string", "maxLength": "string", "pattern": "string",
	"minimum": "integer number", "maximum": "integer number", "exclusiveMinimum": "integer number", "exclusiveMaximum": "integer number", "multipleOf": "integer number",
	"items": "array", "prefixItems": "array", "minItems": "array", "maxItems": "array", "uniqueItems": "array", "contains": "array",
	"properties": "object", "required": "object", "additionalProperties": "object", "patternProperties": "object", "minProperties": "object", "maxProperties": "object", "propertyNames": "object",
}

func hidden(r rune) bool {
	switch {
	case r == '\t' || r == '\n' || r == '\r':
		return false
	case r < 0x20 || r >= 0x7f && r < 0xa0: // control
		return true
	case r == 0x200b || r >= 0x2060 && r <= 0x2064 || r == 0xfeff: // no width; joiners have a use
		return true
	case r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || r == 0x200e || r == 0x200f: // direction
		return true
	case r >= 0xe0000 && r <= 0xe007f: // tags
		return true
	}
	return false
}

// texts calls f with every text that a model reads as words.
func (s *subject) texts(f func(loc, text string)) {
	f("/name", s.Name)
	f("/description", s.Description)
	var walk func(v *jsontext.Value, loc string)
	walk = func(v *jsontext.Value, loc string) {
		if v.Kind == '"' {
			f(loc, v.Str)
		}
		for i, e := range v.Elems {
			walk(e, loc+"/"+strconv.Itoa(i))
		}
		for _, m := range v.Members {
			if m.Key == "pattern" && m.Val.Kind == '"' {
				continue
			}
			at := loc + "/" + jsontext.EscapePointer(m.Key)
			f(at, m.Key)
			walk(m.Val, at)
		}
	}
	walk(s.root, "/parameters")
}

// schemas calls f with every subschema.
func (s *subject) schemas(f func(loc string, v *jsontext.Value)) {
	var walk func(v *jsontext.Value, loc string)
	walk = func(v *jsontext.Value, loc string) {
		f(loc, v)
		eachSubschema(v, func(at string, sub *jsontext.Value) { walk(sub, loc+at) })
	}
	walk(s.root, "/parameters")
}

// contradiction tells which two keywords of one schema no value can keep.
func contradiction(v *jsontext.Value, draft int) string {
	if e := v.Get("enum"); e != nil && len(e.Elems) == 0 {
		return "an empty enum"
	}
	for _, p := range [][3]string{{"minLength", "maxLength", "string"}, {"minItems", "maxItems", "array"}, {"minProperties", "maxProperties", "object"}, {"minContains", "maxContains", "array"}} {
		low, ok := v.Get(p[0]).Rat()
		high, ok2 := v.Get(p[1]).Rat()
		if ok && ok2 && low.Cmp(high) > 0 {
			return p[0] + " " + boundText(low) + " is more than " + p[1] + " " + boundText(high)
		}
	}
	if high, ok := v.Get("maxProperties").Rat(); ok {
		if n := len(v.Get("required").Items()); high.Cmp(big.NewRat(int64(n), 1)) < 0 {
			return strconv.Itoa(n) + " keys are required and " + boundText(high) + " may be there"
		}
	}
	for _, r := range v.Get("required").Items() {
		if v.Get("properties").Get(r.Str).IsFalse() {
			return "required " + strconv.Quote(clipText(r.Str, 80)) + " may not be there"
		}
	}
	low, lowKey, lowOpen := tighter(v, "minimum", "exclusiveMinimum", draft, 1)
	high, highKey, highOpen := tighter(v, "maximum", "exclusiveMaximum", draft, -1)
	if low == nil || high == nil {
		return ""
	}
	both := lowKey + " " + boundText(low) + " and " + highKey + " " + boundText(high)
	if c := low.Cmp(high); c > 0 || c == 0 && (lowOpen || highOpen) {
		return both + " leave nothing"
	}
	step, whole := v.Get("multipleOf").Rat()
	if t := v.Get("type"); t != nil && t.Str == "integer" && !whole {
		step, whole = big.NewRat(1, 1), true
	}
	if whole && step.Sign() > 0 {
		// The first multiple at or above low.
		q := new(big.Rat).Quo(low, step)
		n := new(big.Int).Div(q.Num(), q.Denom()) // floor: the divisor is positive
		first := new(big.Rat).Mul(new(big.Rat).SetInt(n), step)
		if c := first.Cmp(low); c < 0 || c == 0 && lowOpen {
			first.Add(first, step)
		}
		if c := first.Cmp(high); c > 0 || c == 0 && highOpen {
			return both + " leave no multiple of " + boundText(step)
		}
	}
	return ""
}

// tighter is the tighter of an inclusive and an exclusive bound; draft 4 has a
// boolean for the latter.
func tighter(v *jsontext.Value, key, exclusive string, draft, sign int) (r *big.Rat, name string, open bool) {
	if x, ok := v.Get(key).Rat(); ok {
		r, name, open = x, key, draft == draft4 && v.Get(exclusive).IsTrue()
	}
	if x, ok := v.Get(exclusive).Rat(); ok && (r == nil || x.Cmp(r)*sign >= 0) {
		r, name, open = x, exclusive, true
	}
	return r, name, open
}

// mapOf tells whether some schema admits undeclared keys by name.
func mapOf(places []accept.Subschema) bool {
	return slices.ContainsFunc(places, func(p accept.Subschema) bool {
		a := p.Value().Get("additionalProperties")
		return a != nil && a.Kind == '{' && len(a.Members) > 0 || hasAny(p.Value(), "unevaluatedProperties")
	})
}

// constrained tells whether the schema itself relates its keys.
func constrained(places []accept.Subschema) bool {
	return slices.ContainsFunc(places, func(p accept.Subschema) bool {
		return hasAny(p.Value(), "oneOf", "anyOf", "not", "if", "dependentSchemas", "dependencies", "dependentRequired")
	})
}

func namesOf(params []*param) []string {
	var names []string
	for _, p := range params {
		names = append(names, p.name)
	}
	return names
}

// destroys tells whether the tool's first or last word is a destructive verb.
func (s *subject) destroys() bool {
	n := len(s.verb)
	return n > 0 && (toolname.Loses(s.verb[0]) || n > 1 && toolname.Loses(s.verb[n-1]) && s.verb[n-1] != "reset")
}

// paired tells whether the parameter is the value to a key beside it.
func (p *param) paired() bool {
	return p.last() == "value" && slices.ContainsFunc(p.in.params, func(q *param) bool {
		return set("key name field property attribute category time unit label metric")[q.last()]
	})
}

// hashed tells whether the parameter is named as a hash, a UUID or a revision, or
// has a name that says nothing and is described as one.
func (p *param) hashed() bool {
	return hashes[p.last()] || len(p.words) == 2 && p.words[0] == "commit" && p.words[1] == "id" ||
		len(p.words) == 1 && vague[p.words[0]] && slices.ContainsFunc(toolname.Words(p.about), func(w string) bool { return hashes[w] })
}

// saysUnit tells whether name or description name a unit.
func (p *param) saysUnit() bool {
	for i, w := range p.words {
		if units[w] || lastUnits[w] && i > 0 && i == len(p.words)-1 {
			return true
		}
	}
	if strings.ContainsAny(p.about, "%°$€£¥") || strings.Contains(strings.ToLower(p.about), "number of") {
		return true
	}
	return slices.ContainsFunc(toolname.Words(p.about), func(w string) bool { return units[w] })
}

var filling = set(`a an the of for to in on by with and or is are be it its this that which from at as new given existing specified
	id identifier name value parameter param string number integer boolean field`)

// beyond gives the words that say more than name does.
func beyond(words, name []string) []string {
	var out []string
	for _, w := range words {
		same := func(n string) bool { return stem(n) == stem(w) }
		if !filling[w] && !slices.ContainsFunc(name, same) {
			out = append(out, w)
		}
	}
	return out
}

func stem(w string) string {
	switch {
	case len(w) > 4 && strings.HasSuffix(w, "ies"):
		return w[:len(w)-3] + "y"
	case len(w) > 4 && strings.HasSuffix(w, "es") && !strings.HasSuffix(w, "ses"):
		return w[:len(w)-2]
	case len(w) > 3 && strings.HasSuffix(w, "s") && !strings.HasSuffix(w, "ss"):
		return w[:len(w)-1]
	case len(w) > 3 && strings.HasSuffix(w, "e"):
		return w[:len(w)-1]
	}
	return w
}

var opposites = [][2]string{
	{"append", "overwrite"}, {"append", "truncate"}, {"append", "replace"}, {"verbose", "quiet"}, {"verbose", "silent"}, {"enable", "disable"}, {"enabled", "disabled"},
	{"include", "exclude"}, {"asc", "desc"}, {"ascending", "descending"}, {"public", "private"}, {"allow", "deny"}, {"show", "hide"}, {"first", "last"}, {"oldest", "newest"},
	{"with", "without"}, {"on", "off"}, {"start", "stop"}, {"only", "exclude"}, {"sync", "async"}, {"compress", "decompress"}, {"encrypt", "decrypt"}, {"keep", "delete"},
	{"create", "update"}, {"read", "write"}, {"online", "offline"}, {"open", "closed"}, {"active", "inactive"}, {"archived", "active"}, {"force", "safe"},
}

// opposite tells whether two names differ by a pair of opposites only.
func opposite(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	differ := -1
	for i := range a {
		if a[i] != b[i] {
			if differ >= 0 {
				return false
			}
			differ = i
		}
	}
	return differ >= 0 && slices.ContainsFunc(opposites, func(p [2]string) bool {
		return p[0] == a[differ] && p[1] == b[differ] || p[1] == a[differ] && p[0] == b[differ]
	})
}

var (
	quotedList = regexp.MustCompile("(?:[\"'`‘’“”][\\w.+/-]{1,24}[\"'`‘’“”](?:\\s*(?:,|/|\\||\\bor\\b|\\band\\b)\\s*)+)+(?:or\\s+|and\\s+)?[\"'`‘’“”][\\w.+/-]{1,24}[\"'`‘’“”]")
	pipedList  = regexp.MustCompile(`\b[\w-]{1,24}(?:\s?\|\s?[\w-]{1,24}){1,}\b`)
	cuedList   = regexp.MustCompile(`(?i)\b(?:one of|either|possible values(?: are)?|allowed values(?: are)?|valid values(?: are)?|values are|options(?: are)?|must be|supported)\s*:?\s*\(?((?:[\w-]{1,24}\s*(?:,|/|\bor\b)\s*)+(?:or\s+)?[\w-]{1,24})`)
	parensList = regexp.MustCompile(`\(((?:[\w-]{1,24}\s*,\s*)+(?:or\s+)?[\w-]{1,24}(?:\s+or\s+[\w-]{1,24})?|[\w-]{1,24}\s+or\s+[\w-]{1,24})\)`)
	forExample = regexp.MustCompile(`(?i)e\.g|for example|such as|like|including|for instance`)
	classRange = regexp.MustCompile(`^\w-\w$`) // of characters that are allowed
	listWord   = regexp.MustCompile(`[\w.+/-]*\w[\w.+/-]*`)
)

// listedIn finds the values that a description lists.
func listedIn(about string) []string {
	if forExample.MatchString(about) {
		return nil // not all of them
	}
	list := quotedList.FindString(about)
	if list == "" {
		list = pipedList.FindString(about)
	}
	for _, re := range []*regexp.Regexp{cuedList, parensList} {
		if list == "" {
			if m := re.FindStringSubmatch(about); m != nil {
				list = m[1]
			}
		}
	}
	var values []string
	for _, w := range listWord.FindAllString(strings.ReplaceAll(list, "/", " "), -1) {
		if lw := strings.ToLower(w); lw != "or" && lw != "and" && !filling[lw] && !classRange.MatchString(w) && !slices.Contains(values, w) {
			values = append(values, w)
		}
	}
	return values
}
