// Package importtest holds the test that keeps the import rules of the project.
package importtest
