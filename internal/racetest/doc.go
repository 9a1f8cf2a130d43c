// Package racetest tells tests whether the race detector watches them: then
// sync.Pool drops values at random, more is allocated, and all takes ten times
// as long.
package racetest
