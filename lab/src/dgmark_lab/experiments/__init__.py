"""The paper's tables and figures as data; runs that store rows shared by all experiments; and reports."""
