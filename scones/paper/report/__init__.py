"""The report: every table and figure of the paper from stored results, the paper's numbers beside.

published     what the paper printed, typed from its tables; never mixed with ours
study         the results folder, with what the report asks of it
references    where references come from: a data folder, or sacreBLEU's own test sets
significance  bootstrap tests, kept beside the results
checking      BLEU cells computed again from their hypotheses
document      tables, figures and where their numbers come from, free of any format
verdicts      what became of the paper's claims; `judging` has the vote and the noise, `claims_of_…`
              the claims with their rules
summary, setting, quality, measures, rows, speed, searching, unfinished, synthetic    sections
plots         the figures
html, markdown, style    the same document as a page and as Markdown
writing       all of it put together
"""
