// Package seriesparts makes one answer of the series that several processes have counted which share a fleet.
package seriesparts
