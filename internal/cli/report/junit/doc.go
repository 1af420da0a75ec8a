// Package junit is JUnit's XML as CI systems read it.
package junit
