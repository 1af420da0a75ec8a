// Package chart tests the Helm chart: with the real Helm on a real API server, and
// with the binary that runs with exactly what the chart gives it.
package chart
