"""Reports for people: of one incident (`incident_report`), and of many (`digest`). Pure: documents and the time in, text out."""
