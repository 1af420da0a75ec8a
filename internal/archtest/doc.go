// Package archtest holds the checks of the project's own rules that no linter
// offers: which packages may start goroutines, how long a file may be, what the
// modules may require. They read source as text and syntax; nothing here runs
// in the product.
package archtest
