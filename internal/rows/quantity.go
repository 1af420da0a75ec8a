package rows

import (
	"math"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Bounds of a quantity, in bytes: one with an exponent far below zero costs resource.ParseQuantity hours and gigabytes, and a long one quadratic
// time. API servers write short ones, but what a custom resource has there is its author's.
const (
	maxQuantity = 128
	maxExponent = len("e-999")
)

// ParseQuantity returns the number of a quantity, and reports whether a text is one, whose number is finite.
func ParseQuantity(text string) (number float64, ok bool) {
	if e := strings.IndexAny(text, "eE"); len(text) > maxQuantity || e >= 0 && len(text)-e > maxExponent {
		return 0, false
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return 0, false
	}
	number = q.AsApproximateFloat64()
	return number, !math.IsInf(number, 0)
}
