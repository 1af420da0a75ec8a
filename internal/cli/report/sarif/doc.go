// Package sarif is the part of SARIF 2.1.0 that reports use.
package sarif
