package toolname

import (
	"strings"
	"unicode"
)

// An Effect is what calling a tool does, as far as its name says. A greater one
// is worse; zero is unknown.
type Effect uint8

const (
	Reads    Effect = 1 + iota
	Changes         // what can be changed back: creates, updates, adds
	Acts            // on the world: sends, publishes, pays, books, starts
	Destroys        // or runs what it is given, or grants power
)

// losing are the verbs of what can't be had back.
var losing = set("delete remove drop purge wipe truncate destroy erase terminate kill uninstall revoke shutdown rm rmdir unlink overwrite prune reset " +
	"deprovision decommission")

// Loses tells whether a word is a verb of what can't be had back.
func Loses(word string) bool { return losing[word] }

// verbs by effect, those of Destroys beside losing.
var verbs = [...]map[string]bool{
	Reads: set("get list search find read fetch show view describe lookup query count check retrieve calculate compute estimate compare validate " +
		"verify inspect analyze analyse summarize summarise detect classify convert translate format parse preview explain browse filter sort " +
		"head tail cat ls grep diff stat status is has can who what when where which whoami ping watch observe scrape predict forecast identify extract"),
	Changes: set("create add new insert update edit modify change set patch put rename move copy duplicate clone tag label assign link attach " +
		"append save store write upload import mark enable follow like favorite favourite bookmark comment draft archive restore resolve " +
		"close reopen open merge schedule reschedule upsert sync log record register configure generate make build adjust rotate increase decrease"),
	Acts: set("send post publish notify email message call pay charge transfer buy purchase sell order book reserve refund checkout trade withdraw deposit " +
		"submit approve reject invite share release deploy start stop restart pause resume cancel trigger launch run activate deactivate disable " +
		"lock unlock block unblock reply forward tweet retweet broadcast ship dispatch invoice press turn connect disconnect join leave subscribe unsubscribe"),
	Destroys: set("execute exec eval shell sudo grant escalate impersonate force clear flush nuke reboot"),
}

// joints are words behind which another verb stands.
var joints = set("and then or")

// EffectOf is what a name's verbs say: the worst of the one that it begins with,
// else ends with, of those behind and, or and then, and of all words of Destroys:
// get_and_delete_user destroys, list_and_send_email acts. It is 0 where a name
// neither begins nor ends with a verb that is known.
func EffectOf(name string) Effect {
	var words []string
	for _, w := range Words(name) {
		words = append(words, strings.FieldsFunc(w, func(r rune) bool { return !unicode.IsLetter(r) })...)
	}
	if len(words) == 0 {
		return 0
	}
	effect := ofVerb(words[0])
	if effect == 0 {
		effect = ofVerb(words[len(words)-1])
	}
	for i, w := range words {
		e := ofVerb(w)
		if e == Destroys || effect > 0 && i > 0 && joints[words[i-1]] {
			effect = max(effect, e)
		}
	}
	return effect
}

func ofVerb(w string) Effect {
	if losing[w] {
		return Destroys
	}
	for e := Reads; e <= Destroys; e++ {
		if verbs[e][w] {
			return e
		}
	}
	return 0
}

func set(words string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(words) {
		m[w] = true
	}
	return m
}
