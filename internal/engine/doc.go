// Package engine knows one upstream inference server: which kind it is, what it
// can be told, and how it accounts for what it did. Probe asks the running
// server instead of trusting a version number.
package engine
