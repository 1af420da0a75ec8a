// Package sarif has the types of SARIF 2.1.0 that reports use.
package sarif
